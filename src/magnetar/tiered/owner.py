"""Takes and keeps the ownership of object stores by the rules of `ownership.py`.

    start ─ record has our word ─ it was released, or no other process can use it ─── step: it is ours
                                └ else ask, and wait ─ the same record ─────────────── step: it is ours
                                                     ├ a word noted in metadata: a peer wrote it; also ours
                                                     └ another word: its owner lives ─ read-only
          ─ no record, or one of an earlier version ─ step: it is ours; its objects are kept
          ─ record has another word ─ read-only until an operator claims the store

Each written object costs a step (a new word), each deleted object a read of the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore
from magnetar.runtime.tasks import begin, ended
from magnetar.tiered.context import parse_object_name
from magnetar.tiered.errors import ReadOnlyStoreError, StoreError, SwapLostError
from magnetar.tiered.ownership import RECORD, Holding, OwnerRecord, OwnershipVerdict, judge, why_foreign
from magnetar.tiered.stores.object_store import ObjectStore

_log = logging.getLogger("magnetar.tiered")

POLLS: Final = 3
"""Number of times that a living owner reads the record while another process waits for its answer."""
_TRIES: Final = 30
"""Most attempts to change the record while peers change it too."""
_LOOKS: Final = 10
"""Most repeated looks at a record that seems to be another installation's and changes all the time."""


class Role(Enum):
    """What this process may do with a store."""

    UNDECIDED = "undecided"
    OWNER = "owner"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class OwnerContext:
    """The parts that the owners of all stores share."""

    metadata: MetadataStore
    clock: Clock
    installation: Callable[[], Awaitable[str]]
    """Returns the id of this installation, kept in its metadata."""
    new_id: Callable[[], UUID]
    pause: Callable[[float], Awaitable[object]]
    poll_s: float
    """Seconds between two reads of the record by a living owner. All processes that share a store need about
    the same value."""
    shared: bool = False
    """Whether several brokers have this metadata, so that others use the store at the same time."""
    step: Callable[[str], None] = lambda step: None
    """Called after each step, with its name, so that tests can crash there: `asked`, `noted`, `changed`."""


class _State(NamedTuple):
    record: OwnerRecord | None
    tag: str | None
    noted: Holding | None
    version: int
    verdict: OwnershipVerdict
    installation: str


class StoreOwner:
    """The owner of one store in this process."""

    def __init__(self, context: OwnerContext, store: ObjectStore, path: str, *, private: bool) -> None:
        """`path`: path of the note in metadata. `private`: only the process that holds the data folder can
        reach the store."""
        self.role = Role.UNDECIDED
        self.reason = ""
        """Why the store is read-only; empty when it is not."""
        self.epoch = 0
        self._context = context
        self._store = store
        self._path = path
        self._private = private
        self._taking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    @property
    def url(self) -> str:
        """The store's URL."""
        return self._store.url

    @property
    def store(self) -> ObjectStore:
        """The store itself."""
        return self._store

    # ------------------------------------------------------------ checks before writes and deletions

    async def step(self) -> None:
        """Writes a new word; call it before an object is written, and after a list names it.

        Raises ReadOnlyStoreError, StoreError, MetadataError.
        """
        await self.settle()
        async with self._turn:
            await self._step()

    async def check(self) -> Holding:
        """Checks the record; call it before an object is deleted. Raises ReadOnlyStoreError, StoreError,
        MetadataError."""
        await self.settle()
        state = await self._look()
        if state.verdict is not OwnershipVerdict.OURS:
            raise self._refused(state)
        assert state.noted is not None
        self._is_owner(state.noted.epoch)
        return state.noted

    async def look(self) -> None:
        """Answers a process that asks, and notices when another installation took the store; call it every
        `poll_s` seconds.

        Raises ReadOnlyStoreError, StoreError, MetadataError.
        """
        if self.role is Role.UNDECIDED:
            return
        state = await self._look()
        if state.verdict is OwnershipVerdict.OURS:
            assert state.record is not None
            self._is_owner(state.record.epoch)
            if state.record.asked or state.record.released:
                await self.step()
        elif state.verdict is OwnershipVerdict.FOREIGN:
            self._refused(state)

    async def claim(self, *, sweep_earlier: bool = False) -> None:
        """Takes the store from any owner, by an operator's decision. `sweep_earlier`: objects in it that no
        list names may be deleted. Raises StoreError, MetadataError."""
        async with self._turn:
            await self._step(claim=True, sweep_earlier=sweep_earlier)
        _log.warning("the store %s was claimed: this installation writes to it and deletes from it", self.url)

    async def release(self) -> None:
        """Marks the record when the last process of this installation stops, so that the next one need not
        wait.

        Raises StoreError, MetadataError.
        """
        if self.role is not Role.OWNER:
            return
        async with self._turn:
            state = await self._look()
            if state.verdict is OwnershipVerdict.OURS and state.record is not None and not self._private:
                await self._store.swap(RECORD, replace(state.record, released=True).encode(), state.tag)

    async def close(self) -> None:
        """Cancels the work under way; the store is left as after a crash."""
        if self._taking is not None:
            self._taking.cancel()
            await ended(self._taking)

    # ------------------------------------------------------------ how it becomes ours

    async def settle(self) -> None:
        """Waits until the store is ours. Raises ReadOnlyStoreError, StoreError, MetadataError."""
        if self.role is Role.OWNER:
            return
        if self.role is Role.READ_ONLY:
            # A peer may have claimed it meanwhile.
            if (state := await self._look()).verdict is OwnershipVerdict.FOREIGN:
                raise self._refused(state)
            return
        if self._taking is None or self._taking.done():
            self._taking = begin(self._take())
            # All waiting callers may have been cancelled.
            self._taking.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._taking)

    async def _take(self) -> None:
        while True:
            state = await self._look()
            record = state.record
            if state.verdict is OwnershipVerdict.FOREIGN:
                if not self._private or record is None or record.installation != state.installation:
                    raise self._refused(state)
                # As after a backup was restored: no other process reaches this copy of the store.
                _log.warning("%s: %s; objects in it that no log names are kept", self.url, self._why(state))
                async with self._turn:
                    await self._step(claim=True)
                return
            if (
                state.verdict is OwnershipVerdict.FREE
                or self._private
                or (record is not None and record.released)
            ):
                async with self._turn:
                    await self._step()
                return
            assert record is not None
            if not record.asked:
                asking = replace(record, asked=str(self._context.new_id()))
                try:
                    await self._store.swap(RECORD, asking.encode(), state.tag)
                except SwapLostError:  # another process wrote: read again
                    continue
                self._context.step("asked")
                record = asking
            # A living owner answers by another word. Compared by change: clocks of two machines may differ.
            await self._context.pause(self._context.poll_s * POLLS)
            after = await self._look()
            if after.verdict is OwnershipVerdict.OURS and after.record is not None:
                if after.record.word != record.word:
                    self._is_owner(after.record.epoch)
                    return
                if after.record.asked == record.asked:
                    async with self._turn:
                        await self._step()
                    return

    async def _look(self) -> _State:
        installation = await self._context.installation()
        shared = self._context.shared
        state = await self._read(installation)
        for _ in range(_LOOKS):
            if not shared or state.verdict is not OwnershipVerdict.FOREIGN:
                break
            # A peer's note may not have reached the server that this broker reads from. And peers may have
            # written twice between the record and the note, which then has later words than the record had.
            await self._context.metadata.sync()
            before, state = state, await self._read(installation)
            if state.tag == before.tag:
                break
        return state

    async def _read(self, installation: str) -> _State:
        # The record first: what peers note meanwhile only makes more words ours.
        found = await self._store.read(RECORD)
        try:
            record = None if found is None else OwnerRecord.decode(found.data)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{RECORD} in {self.url}", f"it cannot be read: {error}", "restore it, or claim the store"
            ) from error
        value = await self._context.metadata.get(self._path)
        noted = None if value is None else Holding.decode(value.data)
        version = MUST_NOT_EXIST if value is None else value.stat.version
        # What is in the data folder is not elsewhere: its record can only have been deleted.
        verdict = judge(record, noted, installation, shared=self._context.shared and not self._private)
        return _State(record, None if found is None else found.tag, noted, version, verdict, installation)

    async def _step(self, *, claim: bool = False, sweep_earlier: bool = False) -> None:
        """Notes a new word in metadata and writes it to the record. `claim`: also when the record has no word
        of ours."""
        for _ in range(_TRIES):
            state = await self._look()
            if state.verdict is OwnershipVerdict.FOREIGN and not claim:
                raise self._refused(state)
            noted = state.noted or Holding(self.url)
            if state.record is None and noted.word:
                _log.warning("the owner's record in %s is gone and is written again", self.url)
            said = "" if state.record is None else state.record.word
            # A step that a crash cut short is ended before another one begins.
            unfinished = state.verdict is not OwnershipVerdict.FOREIGN and said == noted.word != noted.next
            if not unfinished:
                noted = noted.stepping(said, str(self._context.new_id()))
                if state.verdict is not OwnershipVerdict.OURS or claim:
                    noted = await self._adopting(state, noted, sweep_earlier=sweep_earlier)
                try:
                    await self._context.metadata.put(
                        self._path, noted.encode(), expected_version=state.version
                    )
                except BadVersionError:  # another process wrote: read again
                    continue
                self._context.step("noted")
            record = OwnerRecord(state.installation, noted.next, noted.epoch)
            try:
                await self._store.swap(RECORD, record.encode(), state.tag)
            except SwapLostError:
                # A peer ended this step, or another process asks, or has taken it: the next check tells.
                continue
            self._context.step("changed")
            if not unfinished:
                self._is_owner(noted.epoch)
                return
        raise StoreError(f"{RECORD} in {self.url}", "it changes all the time", "it is tried again")

    async def _adopting(self, state: _State, noted: Holding, *, sweep_earlier: bool) -> Holding:
        epoch = max(noted.epoch, 0 if state.record is None else state.record.epoch + 1)
        if sweep_earlier:
            return replace(noted, url=self.url, epoch=epoch, adopted_ms=0)
        modified_ms = [
            found.modified_ms
            async for found in self._store.list("")
            if parse_object_name(found.name) is not None
        ]
        # A store that is new has nothing to be kept. Where this machine's clock is behind, the objects that
        # are there tell what is earlier.
        kept = modified_ms or state.record is not None
        adopted_ms = max(self._context.clock.now_ms(), *modified_ms, 0) if kept else 0
        return replace(noted, url=self.url, epoch=epoch, adopted_ms=adopted_ms)

    def _is_owner(self, epoch: int) -> None:
        if self.role is not Role.OWNER:
            _log.info("the store %s is this installation's", self.url)
        self.role, self.reason, self.epoch = Role.OWNER, "", epoch

    @staticmethod
    def _why(state: _State) -> str:
        return why_foreign(state.record, state.noted, state.installation)

    def _refused(self, state: _State) -> ReadOnlyStoreError:
        reason = self._why(state)
        error = ReadOnlyStoreError(self.url, reason)
        if self.role is not Role.READ_ONLY or self.reason != reason:
            _log.error("%s", error)
        self.role, self.reason = Role.READ_ONLY, reason
        return error
