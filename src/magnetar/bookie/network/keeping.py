"""What a bookie remembers of its cluster's metadata, and which ledgers it deletes because of it.

The file BELONGS of its first folder (`bookie/belonging.py`) holds the highest generation that the bookie saw,
why it doubts the metadata, and the ledgers in quarantine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import BELONGS_FILE, Belonging, DamagedBelongingError, decode, encode
from magnetar.bookie.decisions import DECISIONS_FILE, forget_decisions, read_decisions
from magnetar.bookie.network.collecting import collect, doubt_of, looking_again, missing_ledgers
from magnetar.metadata.bookkeeper.registry import BookieRegistry
from magnetar.runtime.durable_file import write_durably
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.bookie.network")

DEFAULT_GRACE_S: Final = 604_800


class Keeper:
    """The deletions and the quarantine of one bookie."""

    def __init__(self, folder: Path, registry: BookieRegistry, clock: Clock, *, grace_s: int) -> None:
        """Raises OSError."""
        self._registry = registry
        self._clock = clock
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._file = folder / BELONGS_FILE
        self._decisions = folder / DECISIONS_FILE
        self._looked_s: float | None = None
        self.state = self._read()

    def _read(self) -> Belonging:
        if not self._file.exists():
            return Belonging("")
        try:
            return decode(self._file.read_bytes())
        except DamagedBelongingError as error:
            _log.error("%s: %s: ledgers that metadata does not name are kept", self._file, error)
            return Belonging("", doubt=f"what this bookie knew of its metadata is damaged: {error}")

    async def round(
        self, bookie_id: str, known: set[LedgerId], delete: Callable[[LedgerId], Awaitable[None]]
    ) -> int:
        """Deletes ledgers that no longer exist; returns their number.

        Raises MetadataError, StorageError, OSError: then nothing uncertain was deleted.
        """
        decided = read_decisions(self._decisions)
        delete_surely = looking_again(self._registry, self._registry.connection_id(), delete)
        instance = await self._registry.instance_id()
        generation = await self._registry.generation(bookie_id)
        before = self.state
        if decided.accepts(before.doubt):
            _log.warning("the metadata is accepted as it is: %s", before.doubt or "nothing was in doubt")
            before = replace(before, instance=instance, generation=generation or 0, doubt="")
        doubt = doubt_of(before, instance, generation) or self._registry.doubt()
        if doubt and doubt != self.state.doubt:
            _log.error("%s. Ledgers that it does not name are kept", doubt)
        if not doubt and generation is not None:
            generation = await self._registry.raise_generation(bookie_id, generation)
        state = replace(
            before,
            instance=before.instance or instance,
            generation=max(before.generation, generation or 0),
            doubt=doubt,
        )
        # Durable before any deletion: the next start must know of the doubt.
        await self._write(state)
        missing = await missing_ledgers(known, self._registry)
        for ledger_id in sorted(decided.delete & set(state.held) & set(missing.ledgers)):
            if await delete_surely(ledger_id):
                _log.warning(
                    "ledger %d is deleted from the quarantine: by `magnetar storage quarantine delete`",
                    ledger_id,
                )
            missing.ledgers.remove(ledger_id)
        now_s = self._loop.time()
        elapsed_s = 0 if self._looked_s is None else int(now_s - self._looked_s)
        self._looked_s = now_s
        state, count = await collect(
            state,
            missing,
            delete_surely,
            now_ms=self._clock.now_ms(),
            elapsed_s=elapsed_s,
            grace_s=self._grace_s,
        )
        await self._write(state)
        forget_decisions(self._decisions)
        return count

    async def _write(self, state: Belonging) -> None:
        if state != self.state:
            await in_thread(write_durably, self._file, encode(state))
        self.state = state

    @property
    def has_decisions(self) -> bool:
        """Whether an operator's decision is still to be carried out."""
        return self._decisions.exists()
