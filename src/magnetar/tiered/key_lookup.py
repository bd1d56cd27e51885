"""Finds messages of a log's offloaded history by their key, newest first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.tiered.context import OffloadContext, OffloadedCopy, OffloadedSegment, keys_name, segment_name
from magnetar.tiered.errors import DamagedCopyError, UnreadableCopyError
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, FoundMessage, KeyPlace, MessagePlace
from magnetar.tiered.source import ObjectSource
from magnetar.tiered.storage import TieredStorage

BYTES_MAX: Final = 16 << 20
"""Most bytes of payloads in one answer; the next call continues."""


class LoggedLedger(NamedTuple):
    """A ledger of a log, as the stored list describes it."""

    ledger_id: LedgerId
    entries: int
    offload: OffloadContext | None

    @property
    def copy(self) -> OffloadedCopy | None:
        """Its complete copy in our format; None when there is none."""
        context = self.offload
        if context is None or not context.complete or context.foreign:
            return None
        return OffloadedCopy(self.ledger_id, context)


class UnreadRange(NamedTuple):
    """Entries without a copy, and so without an index: the caller must read them."""

    ledger_id: LedgerId
    first_entry: int
    last_entry: int


@dataclass(slots=True)
class KeyAnswer:
    """The messages that were found, and the entries that were not searched."""

    messages: list[FoundMessage] = field(default_factory=list)
    """Newest first."""
    unread: list[UnreadRange] = field(default_factory=list)
    """Ranges that were not searched, newest first; with `more`, only those newer than the last message."""
    more: bool = False
    """Whether older messages may exist before the last one."""
    segments: int = 0
    """Parquet files that were searched."""
    directories: int = 0
    """Directories of keys that were searched."""


async def find(
    storage: TieredStorage | None,
    log_name: str,
    ledgers: Sequence[LoggedLedger],
    key: bytes,
    *,
    count_max: int,
    before: MessagePlace | None = None,
) -> KeyAnswer:
    """Finds the last `count_max` messages with a key, before the place `before` if it is given.

    `ledgers`: all ledgers of the log, oldest first. `storage`: None when no copy can be searched here; all
    entries are then unread. Raises UnreadableCopyError, DamagedCopyError; both name
    log and object.
    """
    answer = KeyAnswer()
    search = None if storage is None else _Search(storage, log_name, key, answer)
    attempts = {each.ledger_id: each.copy.context.attempt for each in ledgers if each.copy is not None}
    searched: UUID | None = None
    size_bytes = 0
    for ledger in reversed(ledgers):
        if not ledger.entries or (before is not None and ledger.ledger_id > before.ledger_id):
            continue
        copy = ledger.copy
        if copy is None or search is None:
            answer.unread.append(_unread(ledger, before))
            continue
        attempt = copy.context.attempt
        if attempt == searched:
            # An object of several ledgers was asked for all of them.
            continue
        searched = attempt
        async for message in search.messages(copy, count_max - len(answer.messages), before):
            if attempts.get(message.ledger_id) != attempt:
                # Retention removed the ledger, and its object has others yet.
                continue
            answer.messages.append(message)
            size_bytes += len(message.payload)
            if len(answer.messages) == count_max or size_bytes >= BYTES_MAX:
                answer.more = True
                return answer
    return answer


def _unread(ledger: LoggedLedger, before: MessagePlace | None) -> UnreadRange:
    last = ledger.entries - 1
    if before is not None and before.ledger_id == ledger.ledger_id:
        last = min(last, before.entry_id)
    return UnreadRange(ledger.ledger_id, 0, last)


class _Search:
    """The search for one key, from the newest copy to the oldest."""

    def __init__(self, storage: TieredStorage, log_name: str, key: bytes, answer: KeyAnswer) -> None:
        self._storage = storage
        self._log_name = log_name
        self._key = key
        self._answer = answer
        self._told: dict[KeyPlace, bool] = {}
        """By segment: whether it may have the key, according to the directories."""

    async def messages(
        self, copy: OffloadedCopy, count_max: int, before: MessagePlace | None
    ) -> AsyncIterator[FoundMessage]:
        """Messages of one copy."""
        await self._ask_directory(copy)
        for segment in self._holders(copy):
            if before is not None and (copy.named_by, segment.first_entry) > before[:2]:
                continue
            self._answer.segments += 1
            for message in await self._lookup(copy, segment, count_max, before):
                count_max -= 1
                yield message

    async def _ask_directory(self, copy: OffloadedCopy) -> None:
        """Searches the copy's directory, unless a larger one has covered the copy already."""
        context = copy.context
        if context.keys is None or self._place(copy, context.segments[0]) in self._told:
            return
        name = keys_name(self._log_name, copy)
        source = ObjectSource(self._storage.store(context.url), name, context.keys.file_bytes)
        self._answer.directories += 1
        try:
            segments, holders = await self._storage.read_worker(copy).find_key(source, self._key)
        except MagnetarError:
            # A directory only saves reads: the segments have the same keys.
            return
        for place in segments:
            self._told.setdefault(place, False)
        for place in holders:
            self._told[place] = True

    def _holders(self, copy: OffloadedCopy) -> Iterator[OffloadedSegment]:
        for segment in reversed(copy.context.segments):
            if self._told.get(self._place(copy, segment), True):
                yield segment

    @staticmethod
    def _place(copy: OffloadedCopy, segment: OffloadedSegment) -> KeyPlace:
        return KeyPlace(copy.named_by, str(copy.context.attempt), segment.first_entry)

    async def _lookup(
        self, copy: OffloadedCopy, segment: OffloadedSegment, count_max: int, before: MessagePlace | None
    ) -> list[FoundMessage]:
        store = self._storage.store(copy.context.url)
        name = segment_name(self._log_name, copy, segment)
        source = ObjectSource(store, name, segment.file_bytes, footer=segment.footer)
        try:
            return await self._storage.read_worker(copy).lookup(source, self._key, count_max, before)
        except MagnetarError as error:
            self._storage.figures.read_errors += 1
            where = f"log {self._log_name} cannot be searched in {store.url}: {name}: {error}"
            if isinstance(error, DamagedSegmentError):
                raise DamagedCopyError(where) from error
            raise UnreadableCopyError(where, retriable=error.retriable) from error
