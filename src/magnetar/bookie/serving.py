"""What a bookie answers to ledger clients: fences, keys, and what it may say of entries. Sync, no I/O.

Whatever changes the disk goes out as a `Write` and is answered when `durable` comes back for it. Writes
become durable in the order in which they went out.

A fence is set as soon as it is asked for, so no add that comes later is taken; the read that came with it
waits until the fence is durable. By then every add that was taken before it is durable as well and can be
seen: an entry that this bookie called absent under a fence never appears on it through its writer
afterwards.

Source: BookKeeper protocol, behaviour of servers; its findings on fencing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from magnetar.base.errors import CorruptDataError
from magnetar.wire.bookkeeper.requests import LAST_ENTRY, AddRun, Read
from magnetar.wire.bookkeeper.responses import Added, ReadDone
from magnetar.wire.bookkeeper.status import Status


class StoredEntries(Protocol):
    """What is durable."""

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry of a ledger; -1 when there is none."""

    def entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry; None when there is certainly none. Raises CorruptDataError."""


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """What a bookie must know of a ledger after a restart."""

    ledger_id: int
    master_key: bytes
    fenced: bool


@dataclass(frozen=True, slots=True)
class Write:
    """Make this durable; `durable(ticket)` tells that it is."""

    ticket: int
    ledger_id: int
    master_key: bytes
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    fence: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this to whoever asked."""

    asker: object
    response: Added | ReadDone


Output: TypeAlias = Write | Answer


class _Ledger:
    __slots__ = ("fence_durable", "fenced", "master_key", "waiting")

    def __init__(self, master_key: bytes, *, fenced: bool = False) -> None:
        self.master_key = master_key
        self.fenced = fenced
        self.fence_durable = fenced
        self.waiting: list[tuple[object, Read]] = []
        """Reads that came with the fence, until it is durable."""


class BookieLedgers:
    """Decides for all ledgers of one bookie."""

    def __init__(self, store: StoredEntries, ledgers: Sequence[StoredLedger] = ()) -> None:
        """`ledgers`: what was durable when the bookie started."""
        self._store = store
        self._ledgers = {
            ledger.ledger_id: _Ledger(ledger.master_key, fenced=ledger.fenced) for ledger in ledgers
        }
        self._tickets = 0
        self._adds: dict[int, tuple[object, AddRun]] = {}
        self._fences: dict[int, int] = {}

    def add(self, asker: object, run: AddRun) -> list[Output]:
        """Adds of one ledger."""
        ledger = self._ledgers.get(run.ledger_id)
        if ledger is None:
            ledger = self._ledgers[run.ledger_id] = _Ledger(run.master_key)
        elif ledger.master_key != run.master_key:
            return [_added(asker, run, Status.UNAUTHORIZED)]
        if not self._may_add(ledger, run):
            return [_added(asker, run, Status.FENCED)]
        ticket = self._ticket()
        self._adds[ticket] = (asker, run)
        return [Write(ticket, run.ledger_id, run.master_key, run.entry_ids, run.entries, fence=False)]

    def _may_add(self, ledger: _Ledger, run: AddRun) -> bool:
        return not ledger.fenced or run.recovery

    def read(self, asker: object, request: Read) -> list[Output]:
        """One entry, or the last one, with a fence or without."""
        return self._fence(asker, request) if request.fence else [self._look_up(asker, request)]

    def _fence(self, asker: object, request: Read) -> list[Output]:
        key = request.master_key
        ledger = self._ledgers.get(request.ledger_id)
        if key is None or (ledger is not None and ledger.master_key != key):
            return [Answer(asker, _read_done(request, Status.UNAUTHORIZED))]
        if ledger is None:
            # Fenced before its first entry: the writer may still be on its way to this bookie.
            ledger = self._ledgers[request.ledger_id] = _Ledger(key)
        if ledger.fence_durable:
            return [self._look_up(asker, request)]
        outputs: list[Output] = []
        if not ledger.fenced:
            ledger.fenced = True
            ticket = self._ticket()
            self._fences[ticket] = request.ledger_id
            outputs.append(Write(ticket, request.ledger_id, key, (), (), fence=True))
        ledger.waiting.append((asker, request))
        return outputs

    def durable(self, ticket: int) -> list[Output]:
        """A Write, and all that went out before it, is on disk."""
        added = self._adds.pop(ticket, None)
        if added is not None:
            return [_added(*added, Status.OK)]
        ledger = self._ledgers[self._fences.pop(ticket)]
        ledger.fence_durable = True
        waiting, ledger.waiting = ledger.waiting, []
        return [self._look_up(asker, request) for asker, request in waiting]

    def _look_up(self, asker: object, request: Read) -> Answer:
        ledger_id = request.ledger_id
        if ledger_id not in self._ledgers:
            return Answer(asker, _read_done(request, Status.NO_LEDGER))
        entry_id = request.entry_id
        if entry_id == LAST_ENTRY:
            entry_id = self._store.last_entry(ledger_id)
        try:
            entry = self._store.entry(ledger_id, entry_id) if entry_id >= 0 else None
        except CorruptDataError:
            # Not "no such entry": recovery would count it and cut the ledger off.
            return Answer(asker, _read_done(request, Status.IO_ERROR))
        if entry is None:
            return Answer(asker, _read_done(request, Status.NO_ENTRY))
        return Answer(asker, _read_done(request, Status.OK, entry))

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets


def _added(asker: object, run: AddRun, status: Status) -> Answer:
    return Answer(asker, Added(run.ledger_id, status, run.entry_ids, run.txn_ids))


def _read_done(request: Read, status: Status, entry: bytes | None = None) -> ReadDone:
    return ReadDone(request.ledger_id, request.entry_id, status, request.txn_id, entry)
