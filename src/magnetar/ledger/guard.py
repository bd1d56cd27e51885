"""Keeps messages and metadata together: whether they belong together, which ledger ids are used, what may be
deleted.

    begin   before any client is served: judges (`bookie/belonging.py`), raises the generation
    look    periodically: raises the generation, completes interrupted deletions, quarantine
    end     raises the generation once more: a copy made while the process ran is older than the folder

Operators decide by the file DECISIONS of the folder, written by `magnetar storage`; it is read at `begin` and
every few seconds, and removed once it is carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, MetadataError, StartupError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import (
    BELONGS_FILE,
    Belonging,
    DamagedBelongingError,
    FoundPair,
    Held,
    InMetadata,
    decode,
    encode,
    judge,
    pair_in_words,
)
from magnetar.bookie.decisions import DECISIONS_FILE, forget_decisions, read_decisions
from magnetar.bookie.files import storage_error
from magnetar.bookie.quarantine import Round, look
from magnetar.bookie.segment_store import SegmentStore
from magnetar.ledger.listing import existing_ledgers
from magnetar.ledger.paths import DELETIONS, INSTANCE_ID, deletion_path, ledger_path
from magnetar.metadata.documents import number_of, text_of
from magnetar.metadata.keys import GENERATION
from magnetar.metadata.store import ANY_VERSION, MetadataStore, NotFoundError, Put
from magnetar.metadata.trust import MetadataTrust
from magnetar.observability.metrics import Exposition
from magnetar.runtime.durable_file import write_durably
from magnetar.runtime.tasks import pause, yield_loop
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.ledger")

LOOK_S: Final = 600.0
"""Seconds between two searches for unnamed ledgers."""
DECISIONS_S: Final = 5.0
"""Seconds between two searches for decisions."""
_PER_TURN: Final = 100
_NAMED_MAX: Final = 20
"""Ledgers per search that are logged by name."""
_IDENTITY: Final = "identity"
_CHECK: Final = "check"


class LedgerGuard:
    """Guards one segment store and one metadata store."""

    def __init__(
        self,
        store: SegmentStore,
        metadata: MetadataStore,
        clock: Clock,
        trust: MetadataTrust,
        *,
        grace_s: int,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """`check` reads every row of the metadata and raises StorageError for a damaged one."""
        self.trust = trust
        self.given_up = 0
        """Ledgers deleted at the end of their grace period, or by an operator's decision."""
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._grace_s = grace_s
        self._check = check
        self._loop = asyncio.get_running_loop()
        self._file = store.directory / BELONGS_FILE
        self._decisions = store.directory / DECISIONS_FILE
        self._state = Belonging("")
        self._looked_s: float | None = None
        # One change of the file at a time: each writes all of it.
        self._writing = asyncio.Lock()
        self._working = asyncio.Lock()

    # -- the owner of the messages --------------------------------------------------------------

    async def begin(self) -> None:
        """To be called before a ledger is created or opened.

        Raises StartupError, StorageError, MetadataError.
        """
        decisions = read_decisions(self._decisions)
        said = self._read()
        theirs = await self._in_metadata()
        accepted = decisions.accepts(pair_in_words(said, theirs))
        if isinstance(said, DamagedBelongingError) and not accepted:
            raise StartupError(
                f"{self._file}: {said}. Nothing was changed. Restore this file from a backup; or go on with "
                "the metadata that is there by `magnetar storage accept`"
            ) from said
        mine = said if isinstance(said, Belonging) else None
        verdict = judge(
            mine,
            theirs,
            await self._found(needs_all=mine is None or theirs is None or not mine.generation),
            new_instance=str(uuid.uuid4()),
            accepted=accepted,
            folder=str(self._store.directory),
        )
        before = mine or Belonging(verdict.instance)
        self._state = replace(
            before,
            instance=verdict.instance,
            doubt=verdict.doubt,
            ids_end=max(before.ids_end, LedgerId(self._store.segments.highest_ledger() + 1)),
        )
        self._tell_doubt()
        await self._raise_to(verdict.generation)
        if accepted:
            _log.warning("generation %d: the metadata is accepted as it is", verdict.generation)
        if decisions.delete:
            await self.decide()
        else:
            forget_decisions(self._decisions)

    def _read(self) -> Belonging | DamagedBelongingError | None:
        if not self._file.exists():
            return None
        try:
            return decode(self._file.read_bytes())
        except DamagedBelongingError as error:
            return error

    async def _in_metadata(self) -> InMetadata | None:
        instance = await self._metadata.get(INSTANCE_ID)
        generation = await self._metadata.get(GENERATION)
        if instance is None or generation is None:
            return None
        return InMetadata(text_of(INSTANCE_ID, instance.data), number_of(GENERATION, generation.data))

    async def _found(self, *, needs_all: bool) -> FoundPair:
        has_ledgers = any(ledger_id >= 0 for ledger_id in self._store.ledger_ids())
        names_entries = names_ledgers = False
        if needs_all or not has_ledgers:
            async for _, metadata in existing_ledgers(self._metadata):
                names_ledgers = True
                if metadata.end is not None and metadata.end.last_entry >= 0:
                    names_entries = True
                    break
        return FoundPair(has_ledgers, names_entries, names_ledgers)

    def _tell_doubt(self) -> None:
        if self._state.doubt:
            self.trust.doubted(_IDENTITY, self._state.doubt)
            _log.error(
                "%s. Ledgers that it does not name are kept; `magnetar storage quarantine` lists them",
                self._state.doubt,
            )
        else:
            self.trust.cleared(_IDENTITY)

    async def _raise_to(self, generation: int) -> None:
        """The three steps. On a full disk they are skipped: the present generations match as well."""
        try:
            await self._write(begun=generation)
            await self._metadata.transact(
                [
                    Put(INSTANCE_ID, self._state.instance.encode(), ANY_VERSION),
                    Put(GENERATION, str(generation).encode(), ANY_VERSION),
                ]
            )
            await self._write(generation=generation)
        except (OSError, StorageError, MetadataError) as error:
            # Repeated with the next search; meanwhile only the protection against older copies is missing.
            _log.warning("the generation stays %d for now: %s", self._state.generation, error)

    async def _write(self, **changes: Any) -> None:
        """Changes the content of the file: durable on return. Raises OSError."""
        async with self._writing:
            changed = replace(self._state, **changes)
            if changed != self._state or not self._file.exists():
                await in_thread(write_durably, self._file, encode(changed))
            self._state = changed

    # -- ids ------------------------------------------------------------------------------------

    @property
    def ids_end(self) -> LedgerId:
        """No ledger id from here on was ever assigned in this folder, and none has entries in it."""
        return self._state.ids_end

    async def ids_given(self, end: int) -> None:
        """To be called before ids below `end` are assigned. Raises StorageError."""
        try:
            await self._write(ids_end=max(LedgerId(end), self._state.ids_end))
        except OSError as error:
            raise storage_error(error, self._file.parent, "note which ledger ids are used") from error

    async def run(self) -> None:
        """Searches periodically, and carries out decisions, until it is cancelled."""
        looked_s = self._loop.time() - LOOK_S
        while True:
            try:
                if self._loop.time() - looked_s >= LOOK_S:
                    looked_s = self._loop.time()
                    await self.look()
                await self.decide()
            except (OSError, MagnetarError) as error:  # the loop is the retry; nothing is deleted in between
                _log.error("ledgers that metadata does not name were not searched: %s", error)
            await pause(DECISIONS_S)

    # -- what may be deleted --------------------------------------------------------------------

    async def _measured(self, ledger_id: LedgerId, held: Held) -> Held:
        try:
            index = await self._store.reader.index_of(ledger_id)
        except StorageError as error:
            _log.error("the size of ledger %d is not known: %s", ledger_id, error)
            return held
        return replace(held, entries=index.last_entry + 1, size_bytes=index.data_bytes)

    async def look(self) -> None:
        """One search; see the module. Raises StorageError, MetadataError."""
        async with self._working:
            if self._looked_s is not None:
                await self._raise_to(self._state.begun + 1)
            if self.trust.is_trusted:
                await self._finish_deletions()
            # The list first: a ledger's metadata is durable before its first entry.
            unnamed = await self._unnamed(self._store.ledger_ids())
            now_s = self._loop.time()
            elapsed_s = 0 if self._looked_s is None else int(now_s - self._looked_s)
            self._looked_s = now_s
            found = look(
                self._state.held,
                unnamed,
                now_ms=self._clock.now_ms(),
                elapsed_s=elapsed_s,
                grace_s=self._grace_s,
            )
            for ledger_id in found.entered:
                found.held[ledger_id] = await self._measured(ledger_id, found.held[ledger_id])
            self._tell(found)
            await self._write(held=found.held)
            if found.due and await self._is_sound():
                await self._give_up(found.due, "its grace period is over")

    async def _unnamed(self, ledger_ids: Iterable[LedgerId]) -> list[LedgerId]:
        unnamed = []
        for number, ledger_id in enumerate(sorted(each for each in ledger_ids if each >= 0)):
            if number % _PER_TURN == 0:
                await yield_loop()
            if not await self._metadata.exists(ledger_path(ledger_id)):
                unnamed.append(ledger_id)
        return unnamed

    def _tell(self, found: Round) -> None:
        for ledger_id in found.entered[:_NAMED_MAX]:
            held = found.held[ledger_id]
            _log.error(
                "ledger %d of %d entries, %d bytes is not named by metadata: it is kept in quarantine",
                ledger_id,
                held.entries,
                held.size_bytes,
            )
        if len(found.entered) > _NAMED_MAX:
            _log.error("the same holds for %d more ledgers", len(found.entered) - _NAMED_MAX)
        for ledger_id in found.left:
            _log.warning("ledger %d leaves the quarantine: it is named again, or deleted", ledger_id)

    async def _is_sound(self) -> bool:
        """Whether an absence in the metadata counts, right now."""
        try:
            await self._check()
        except StorageError as error:
            self.trust.doubted(_CHECK, str(error))
            _log.error("nothing is deleted: %s", error)
        else:
            self.trust.cleared(_CHECK)
        return self.trust.is_trusted

    async def _give_up(self, ledger_ids: Iterable[LedgerId], why: str) -> None:
        for ledger_id in ledger_ids:
            if await self._metadata.exists(ledger_path(ledger_id)):
                continue
            held = self._state.held[ledger_id]
            await self._store.delete(ledger_id)
            self.given_up += 1
            _log.warning(
                "ledger %d of %d entries, %d bytes is deleted from the quarantine: %s",
                ledger_id,
                held.entries,
                held.size_bytes,
                why,
            )
            await self._write(
                held={each: kept for each, kept in self._state.held.items() if each != ledger_id}
            )

    async def _finish_deletions(self) -> None:
        """Completes requested deletions that a crash interrupted."""
        for name in await self._metadata.children(DELETIONS):
            ledger_id = LedgerId(int(name))
            if not await self._metadata.exists(ledger_path(ledger_id)):
                await self._store.delete(ledger_id)
                _log.info("the interrupted deletion of ledger %d is complete", ledger_id)
            await self.deletion_done(ledger_id)

    async def deletion_done(self, ledger_id: LedgerId) -> None:
        """All entries of the ledger are gone: removes the record of its deletion."""
        with contextlib.suppress(NotFoundError):  # another call removed it
            await self._metadata.delete(deletion_path(ledger_id))

    # -- decisions ------------------------------------------------------------------------------

    async def decide(self) -> None:
        """Carries out the decisions since the last call. Raises StorageError, MetadataError."""
        if not self._decisions.exists():
            return
        async with self._working:
            decisions = read_decisions(self._decisions)
            theirs = await self._in_metadata()
            if self._state.doubt and decisions.accepts(pair_in_words(self._state, theirs)):
                _log.warning("the metadata is accepted as it is: %s", self._state.doubt)
                await self._write(doubt="")
                self._tell_doubt()
            await self._give_up(
                sorted(decisions.delete & set(self._state.held)), "by `magnetar storage quarantine delete`"
            )
            forget_decisions(self._decisions)

    async def end(self) -> None:
        """To be called when no client is served any more."""
        if self._store.failure is None:
            await self._raise_to(self._state.begun + 1)

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """Adds the ledgers in quarantine to a scrape."""
        held = self._state.held.values()
        out.gauge(
            "magnetar_quarantined_ledgers",
            "Ledgers in quarantine: stored, and not named by metadata.",
            len(held),
        )
        out.gauge(
            "magnetar_quarantined_bytes",
            "Bytes of ledgers in quarantine.",
            sum(each.size_bytes for each in held),
        )
        out.counter(
            "magnetar_quarantine_deleted_total", "Ledgers deleted from the quarantine.", self.given_up
        )
        out.gauge(
            "magnetar_metadata_doubted",
            "1 while metadata is doubted (damaged, or an older copy), so that ledgers which"
            " it does not name are kept; else 0.",
            0 if self.trust.is_trusted else 1,
        )
        yield
