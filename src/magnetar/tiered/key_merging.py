"""Makes directories of keys, so that a look-up by key need not search every copy of a log.

Every fourth copy gets a directory of its own keys and those of the three copies before it, every sixteenth
one of sixteen copies, and so on. A look-up then searches at most 3 directories for each power of four, and
the copies that no directory covers. A larger directory is made from smaller ones. A directory belongs to the
attempt whose prefix its name has, and is deleted with it. It outlives the other ledgers that it covers, as
retention deletes the oldest first. When a directory cannot be made, look-ups cost more reads: copies without
a directory are searched one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.tiered.api import OffloadedLog, SealedLedger
from magnetar.tiered.context import KeyObject, OffloadedCopy, keys_name, segment_name
from magnetar.tiered.parquet.parquet_history import KeyPlace, KeySource, SegmentWorker
from magnetar.tiered.source import ObjectSource
from magnetar.tiered.stores.object_store import ObjectStore

_log = logging.getLogger("magnetar.tiered")

FAN_IN: Final = 4
"""Directories of one size that are merged into the next size. A larger number writes fewer bytes and costs
more reads."""


def blocks_to_merge(blocks: Sequence[int]) -> int:
    """The number of blocks to merge with a new copy.

    `blocks`: the number of objects that each block just before the copy covers, newest first.
    """
    size, taken = 1, 0
    while True:
        alike = blocks[taken : taken + FAN_IN - 1]
        if len(alike) < FAN_IN - 1 or any(block > size for block in alike):
            return taken
        taken += len(alike)
        size += sum(alike)


class KeyDirectories:
    """Adds a directory to each complete copy that must have one."""

    def __init__(
        self, *, worker: Callable[[], SegmentWorker], store: Callable[[str], ObjectStore], work_dir: Path
    ) -> None:
        """`store` returns the store at a URL; `work_dir` holds the file until it is uploaded."""
        self._worker = worker
        self._store = store
        self._work_dir = work_dir

    async def add(self, log: OffloadedLog, ledger_id: LedgerId) -> None:
        """Makes and uploads the directory if the copy of this ledger must have one. Logs errors."""
        try:
            await self._add(log, ledger_id)
        except (MagnetarError, OSError) as error:
            # A directory only makes looking up faster; the next merge makes it.
            _log.warning("log %s: no directory of keys up to ledger %d: %s", log.name, ledger_id, error)

    async def _add(self, log: OffloadedLog, ledger_id: LedgerId) -> None:
        sealed = log.sealed()
        at = next((number for number, each in enumerate(sealed) if each.ledger_id == ledger_id), -1)
        if at < 0 or not _is_ours(sealed[at]):
            return
        own, *blocks = _blocks_upto(sealed, at)
        count = blocks_to_merge([block.objects for block in blocks])
        if not count:
            return
        members = [sealed[block.at] for block in (own, *blocks[:count])]
        sources = [source for ledger in members for source in self._sources(log.name, ledger)]
        context = sealed[at].offload
        assert context is not None
        file = self._work_dir / f"{context.attempt}-keys"
        try:
            size = await self._worker().merge_keys(sources, str(file))
            if not size:
                _log.info("log %s: too many keys for a directory up to ledger %d", log.name, ledger_id)
                return
            await self._store(context.url).put(keys_name(log.name, OffloadedCopy(ledger_id, context)), file)
        finally:
            file.unlink(missing_ok=True)
        ledgers = sum(block.ledgers for block in (own, *blocks[:count]))
        await log.remember(ledger_id, context, replace(context, keys=KeyObject(size, ledgers)))

    def _sources(self, log_name: str, ledger: SealedLedger) -> list[KeySource]:
        """The directory of a copy, or its segments when it has none."""
        context = ledger.offload
        assert context is not None
        copy, store = OffloadedCopy(ledger.ledger_id, context), self._store(context.url)
        if context.keys is not None:
            source = ObjectSource(store, keys_name(log_name, copy), context.keys.file_bytes)
            return [KeySource(source, None)]
        return [
            KeySource(
                ObjectSource(
                    store,
                    segment_name(log_name, copy, segment),
                    segment.file_bytes,
                    footer=segment.footer,
                ),
                KeyPlace(copy.named_by, str(context.attempt), segment.first_entry),
            )
            for segment in context.segments
        ]


def _is_ours(ledger: SealedLedger) -> bool:
    return ledger.offload is not None and ledger.offload.complete and not ledger.offload.foreign


class _Block(NamedTuple):
    at: int
    """Index of its last ledger."""
    ledgers: int
    objects: int


def _blocks_upto(sealed: Sequence[SealedLedger], at: int) -> list[_Block]:
    """The blocks up to the copy at index `at`, newest first. A block is a copy, or all copies that its
    directory covers. The list ends where a ledger has no copy."""
    blocks = []
    while at >= 0 and _is_ours(sealed[at]):
        context = sealed[at].offload
        assert context is not None
        ledgers = _sharing(sealed, at) if context.keys is None else min(context.keys.ledgers, at + 1)
        covered = sealed[at - ledgers + 1 : at + 1]
        objects = {ledger.offload.attempt for ledger in covered if ledger.offload is not None}
        blocks.append(_Block(at, ledgers, len(objects)))
        at -= ledgers
    return blocks


def _sharing(sealed: Sequence[SealedLedger], at: int) -> int:
    """The number of ledgers, up to the one at `at`, that share its object."""
    context = sealed[at].offload
    ledgers = 1
    while ledgers <= at and (other := sealed[at - ledgers].offload) is not None:
        if context is None or other.attempt != context.attempt:
            break
        ledgers += 1
    return ledgers
