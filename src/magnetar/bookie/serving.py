"""The rules by which a bookie answers ledger clients: fences, keys, and what it may say of entries. Sync, no
I/O.

A request that changes the disk results in a `Write`, and is answered when `durable` or `failed` reports its
outcome. Writes become durable in their order.

A fence holds from the moment of its request, so later adds are refused; the read that came with it waits
until the fence is durable. A read that has waited is a `Waited`: the driver asks again when its client can
take the answer. By then every add that was accepted before the fence is durable and visible too: an entry
that this bookie called absent under a fence never appears on it through its writer afterwards.

A ledger whose entries or fence may have been lost is in limbo: it accepts only the writes of a recovery, and
its absences are not certain.

Source: BookKeeper protocol, behaviour of servers; its findings on fencing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.known_ledger import SERVING_RULES, KnownLedger, ServingRules
from magnetar.bookie.served import (
    ListedEntries,
    Output,
    ServedAnswer,
    ServedLedger,
    StoredEntries,
    Wait,
    Write,
)
from magnetar.bookie.tailing import lac_of_blob, lac_of_entry, previous_of
from magnetar.bookie.waiting import WaitingReads
from magnetar.wire.bookkeeper.availability import encode_entries
from magnetar.wire.bookkeeper.requests import (
    LAST_ENTRY,
    AddRun,
    BatchRead,
    ForceLedger,
    ListEntries,
    Read,
    ReadLac,
    WriteLac,
)
from magnetar.wire.bookkeeper.responses import (
    Added,
    BatchReadDone,
    EntriesListed,
    Forced,
    LacRead,
    LacWritten,
    ReadDone,
)
from magnetar.wire.bookkeeper.status import Status

BATCH_BYTES_MAX: Final = 5 << 20
"""Bytes of one response to a batch read at most, whatever its client would accept."""
_BATCH_HEAD_BYTES: Final = 36


class BookieLedgers:
    """The rules for all ledgers of one bookie."""

    def __init__(
        self,
        store: StoredEntries,
        ledgers: Sequence[ServedLedger] = (),
        buried: Iterable[LedgerId] = (),
        *,
        knows_all: bool = True,
        rules: ServingRules = SERVING_RULES,
    ) -> None:
        """`ledgers`: the durable state at the start; `buried`: ledgers deleted before whose space is still in
        use.

        `knows_all`: whether other entries certainly do not exist.
        """
        self._unknown = Status.NO_LEDGER if knows_all else Status.UNKNOWN_LEDGER_STATE
        self.read_only = False
        """Whether only recoveries may write, because the disk is full."""
        self._store = store
        self._rules = rules
        self._ledgers = {ledger.ledger_id: KnownLedger.of(ledger) for ledger in ledgers}
        self._buried = set(buried)
        """Deleted ledgers: a writer that does not know of the deletion must not create them again."""
        self._tickets = 0
        self._adds: dict[int, tuple[object, AddRun]] = {}
        self._fences: dict[int, LedgerId] = {}
        self.fencing: Final = WaitingReads()
        """Reads that wait for a fence. A driver asks only while there is a place: they end with a sync."""
        self.polls: Final = WaitingReads()
        """Reads that wait for more entries."""
        self._others: dict[int, tuple[object, WriteLac | ForceLedger]] = {}

    # -- adds -----------------------------------------------------------------------------------

    def add(self, asker: object, run: AddRun) -> list[Output]:
        """Handles adds to one ledger."""
        if run.ledger_id < 0 or min(run.entry_ids) < 0:
            return [_added(asker, run, Status.BAD_REQUEST)]
        if self.read_only and not run.high_priority:
            return [_added(asker, run, Status.READ_ONLY)]
        if run.ledger_id in self._buried:
            return [_added(asker, run, Status.FENCED)]
        ledger = self._ledgers.get(run.ledger_id)
        if ledger is None:
            limbo = self._unknown is not Status.NO_LEDGER
            if limbo and not run.recovery:
                # The fence may have been lost.
                return [_added(asker, run, Status.READ_ONLY)]
            # It may have had more entries here than are written again now.
            ledger = KnownLedger(run.master_key, fenced=limbo, limbo=limbo)
            self._ledgers[run.ledger_id] = ledger
        elif not ledger.accept_key(run.master_key):
            return [_added(asker, run, Status.UNAUTHORIZED)]
        if not self._rules.may_add(ledger, run):
            return [_added(asker, run, Status.FENCED)]
        ticket = self._ticket()
        write = Write(ticket, run.ledger_id, run.master_key, run.entry_ids, run.entries, fence=False)
        self._adds[ticket] = (asker, run)
        # Written all the same, and answered first: a client that needs it durable forces the ledger.
        return [_added(asker, run, Status.OK), write] if run.deferred_sync else [write]

    # -- reads ----------------------------------------------------------------------------------

    def read(self, asker: object, request: Read) -> list[Output]:
        """Handles a read of one entry, or of the last one: with a fence, without one, or once there is more.

        It changes nothing before it has read: an error of the store may be met by a repetition. A poll
        without a place to wait is answered TOO_MANY_REQUESTS.
        """
        if request.fence:
            return self._fence(asker, request)
        if request.previous_lac is None:
            return [self._look_up(asker, request)]
        return self._read_tail(asker, request)

    def _fence(self, asker: object, request: Read) -> list[Output]:
        key = request.master_key
        ledger = self._ledgers.get(request.ledger_id)
        if key is None or (ledger is not None and not ledger.accept_key(key)):
            return [ServedAnswer(asker, _read_done(request, Status.UNAUTHORIZED))]
        if request.ledger_id in self._buried:
            return [ServedAnswer(asker, _read_done(request, Status.NO_LEDGER))]
        if ledger is None:
            if not self._rules.fences_unknown():
                return [self._look_up(asker, request)]
            limbo = self._unknown is not Status.NO_LEDGER
            ledger = self._ledgers[request.ledger_id] = KnownLedger(key, limbo=limbo)
        outputs: list[Output] = []
        if not ledger.fenced:
            ledger.fenced = True
            ticket = self._ticket()
            self._fences[ticket] = request.ledger_id
            outputs.append(Write(ticket, request.ledger_id, key, (), (), fence=True))
            outputs += self.polls.end(ledger.tail.all())
        if self._rules.answers_before(ledger):
            return [*outputs, self._look_up(asker, request)]
        # It shares the ledger's key: the client may have sent the same bytes many times.
        wait = Wait(asker, replace(request, master_key=ledger.master_key), None)
        self.fencing.begin(wait, ledger.waiting)
        return outputs

    def _look_up(self, asker: object, request: Read) -> ServedAnswer:
        ledger_id = request.ledger_id
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return ServedAnswer(asker, _read_done(request, self._unknown))
        entry_id = request.entry_id if request.entry_id != LAST_ENTRY else self._store.last_entry(ledger_id)
        try:
            entry = self._store.entry(ledger_id, entry_id) if entry_id >= 0 else None
            # Responses of version 3 carry the last add confirmed, except under a fence.
            lac = None if request.fence or request.txn_id is None else self._lac(ledger_id, ledger)
        except CorruptDataError:
            # Not "no such entry": recovery would count it and truncate the ledger.
            return ServedAnswer(asker, _read_done(request, Status.IO_ERROR))
        if entry is None:
            absent = Status.UNKNOWN_LEDGER_STATE if ledger.limbo else Status.NO_ENTRY
            return ServedAnswer(asker, _read_done(request, absent))
        return ServedAnswer(asker, _read_done(request, Status.OK, entry, lac))

    def batch_read(self, asker: object, request: BatchRead) -> list[Output]:
        """Handles a batch read: as many consecutive entries as are wanted and fit; at least the first."""
        if request.fence:
            # Recovery does not use it; a fence without its rules would be no fence.
            return [ServedAnswer(asker, _batch_done(request, Status.BAD_REQUEST))]
        count = request.count_max if request.count_max > 0 else BATCH_BYTES_MAX
        room = min(request.bytes_max, BATCH_BYTES_MAX) - _BATCH_HEAD_BYTES
        entries: list[bytes] = []
        entry_id = request.first_entry
        while len(entries) < count:
            one = Read(request.ledger_id, entry_id)
            response = self._look_up(asker, one).response
            assert isinstance(response, ReadDone)
            if response.entry is None:
                if not entries:
                    return [ServedAnswer(asker, _batch_done(request, response.status))]
                break
            room -= len(response.entry) + 4
            if room < 0 and entries:
                break
            entries.append(response.entry)
            entry_id += 1
        return [ServedAnswer(asker, _batch_done(request, Status.OK, entries))]

    def list_entries(self, asker: object, request: ListEntries, store: ListedEntries) -> list[Output]:
        """Handles a request for the list of entries."""
        ledger = self._ledgers.get(request.ledger_id)
        if ledger is None:
            return [ServedAnswer(asker, EntriesListed(request.ledger_id, Status.NO_LEDGER, request.txn_id))]
        listed = encode_entries(store.entry_ranges(request.ledger_id))
        return [ServedAnswer(asker, EntriesListed(request.ledger_id, Status.OK, request.txn_id, listed))]

    # -- the end of a ledger --------------------------------------------------------------------

    def _lac(self, ledger_id: LedgerId, ledger: KnownLedger) -> int:
        """The highest last add confirmed known here. Raises CorruptDataError."""
        tail = ledger.tail
        if tail.lac is None:
            last = self._store.last_entry(ledger_id)
            entry = self._store.entry(ledger_id, last) if last >= 0 else None
            tail.saw(-1 if entry is None else lac_of_entry(entry))
            if tail.blob is not None:
                tail.saw(lac_of_blob(tail.blob))
        assert tail.lac is not None
        return tail.lac

    def _read_tail(self, asker: object, request: Read) -> list[Output]:
        ledger = self._ledgers.get(request.ledger_id)
        if ledger is None:
            return [ServedAnswer(asker, _read_done(request, Status.NO_LEDGER))]
        if request.piggyback and request.entry_id != LAST_ENTRY:
            return [ServedAnswer(asker, _read_done(request, Status.BAD_REQUEST))]
        try:
            lac = self._lac(request.ledger_id, ledger)
        except CorruptDataError:
            return [ServedAnswer(asker, _read_done(request, Status.IO_ERROR))]
        if request.timeout_ms and not ledger.fenced and lac <= previous_of(request):
            gave_way = self.polls.make_place(asker)
            if gave_way is None:
                return [ServedAnswer(asker, _read_done(request, Status.TOO_MANY_REQUESTS))]
            wait = Wait(asker, replace(request, timeout_ms=None, master_key=None), request.timeout_ms)
            self.polls.begin(wait, ledger.tail.waiting)
            return [*gave_way, wait]
        return [self._answer_tail(asker, request, ledger)]

    def _answer_tail(self, asker: object, request: Read, ledger: KnownLedger) -> ServedAnswer:
        if not request.piggyback:
            return self._look_up(asker, request)
        wanted = previous_of(request) + 1
        try:
            lac = self._lac(request.ledger_id, ledger)
            entry = self._store.entry(request.ledger_id, wanted) if lac >= wanted else None
        except CorruptDataError:
            return ServedAnswer(asker, _read_done(request, Status.IO_ERROR))
        found = request.entry_id if entry is None else wanted
        return ServedAnswer(asker, ReadDone(request.ledger_id, found, Status.OK, request.txn_id, entry, lac))

    def wait_over(self, wait: Wait) -> list[Output]:
        """The time of a Wait is over."""
        return self.polls.over(wait)

    def gone(self, asker: object) -> list[Wait]:
        """A client has gone; removes and returns its reads that wait for more entries."""
        self.fencing.gone(asker)
        return self.polls.gone(asker)

    def write_lac(self, asker: object, request: WriteLac) -> list[Output]:
        """Stores an explicit last add confirmed."""
        status = Status.OK
        ledger = self._ledgers.get(request.ledger_id)
        if self.read_only or (ledger is None and self._unknown is not Status.NO_LEDGER):
            # The fence of a ledger that is not known may have been lost.
            status = Status.READ_ONLY
        elif request.ledger_id in self._buried:
            status = Status.NO_LEDGER
        elif ledger is None:
            ledger = self._ledgers[request.ledger_id] = KnownLedger(request.master_key)
        elif not ledger.accept_key(request.master_key):
            status = Status.UNAUTHORIZED
        if status is not Status.OK:
            return [ServedAnswer(asker, LacWritten(request.ledger_id, status, request.txn_id))]
        ticket = self._ticket()
        self._others[ticket] = (asker, request)
        key, blob = request.master_key, request.blob
        return [Write(ticket, request.ledger_id, key, (), (), fence=False, lac_blob=blob)]

    def read_lac(self, asker: object, request: ReadLac) -> list[Output]:
        """Reads the explicit last add confirmed, and the last entry."""
        ledger_id = request.ledger_id
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return [ServedAnswer(asker, LacRead(ledger_id, Status.NO_LEDGER, request.txn_id))]
        answer = self._look_up(asker, Read(ledger_id, LAST_ENTRY)).response
        assert isinstance(answer, ReadDone)
        blob, status = ledger.tail.blob, answer.status
        if status is Status.NO_ENTRY and blob is not None:
            status = Status.OK
        return [ServedAnswer(asker, LacRead(ledger_id, status, request.txn_id, blob, answer.entry))]

    def force(self, asker: object, request: ForceLedger) -> list[Output]:
        """Answers once all earlier adds are durable."""
        ledger = self._ledgers.get(request.ledger_id)
        if ledger is None:
            return [ServedAnswer(asker, Forced(request.ledger_id, Status.NO_LEDGER, request.txn_id))]
        ticket = self._ticket()
        self._others[ticket] = (asker, request)
        return [Write(ticket, request.ledger_id, ledger.master_key, (), (), fence=False)]

    # -- what became of writes ------------------------------------------------------------------

    def durable(self, ticket: int) -> list[Output]:
        """A Write, and all earlier ones, are durable."""
        added = self._adds.pop(ticket, None)
        if added is not None:
            asker, run = added
            outputs: list[Output] = [] if run.deferred_sync else [_added(asker, run, Status.OK)]
            ledger = self._ledgers.get(run.ledger_id)
            if ledger is not None:
                ledger.tail.saw(lac_of_entry(run.entries[-1]))
                if ledger.tail.waiting:
                    outputs += self.polls.end(ledger.tail.ready())
            return outputs
        other = self._others.pop(ticket, None)
        if other is not None:
            return self._other_durable(*other)
        ledger = self._ledgers.get(self._fences.pop(ticket))
        if ledger is None:
            return []
        ledger.fence_durable = True
        return self.fencing.end(ledger.fence_over())

    def _other_durable(self, asker: object, request: WriteLac | ForceLedger) -> list[Output]:
        if isinstance(request, ForceLedger):
            return [ServedAnswer(asker, Forced(request.ledger_id, Status.OK, request.txn_id))]
        outputs: list[Output] = [
            ServedAnswer(asker, LacWritten(request.ledger_id, Status.OK, request.txn_id))
        ]
        ledger = self._ledgers.get(request.ledger_id)
        if ledger is not None:
            ledger.tail.blob = request.blob
            ledger.tail.saw(request.lac)
            outputs += self.polls.end(ledger.tail.ready())
        return outputs

    def failed(self, ticket: int, status: Status) -> list[Output]:
        """A Write failed; `status` is the answer."""
        added = self._adds.pop(ticket, None)
        if added is not None:
            return [] if added[1].deferred_sync else [_added(*added, status)]
        other = self._others.pop(ticket, None)
        if other is not None:
            asker, request = other
            kind = Forced if isinstance(request, ForceLedger) else LacWritten
            return [ServedAnswer(asker, kind(request.ledger_id, status, request.txn_id))]
        ledger = self._ledgers.get(self._fences.pop(ticket))
        if ledger is None:
            return []
        # No client was told of the fence; a repeated request gets a new one.
        ledger.fenced = ledger.limbo
        waits = ledger.fence_over()
        self.fencing.end(waits)
        return [ServedAnswer(wait.asker, _read_done(wait.request, Status.IO_ERROR)) for wait in waits]

    def forget(self, ledger_id: LedgerId) -> list[Output]:
        """The ledger was deleted."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is None:
            return []
        self._buried.add(ledger_id)
        return [*self.fencing.end(ledger.fence_over()), *self.polls.end(ledger.tail.all())]

    def known(self) -> list[LedgerId]:
        """All ledgers that the bookie knows."""
        return list(self._ledgers)

    @property
    def in_limbo(self) -> int:
        """Number of ledgers that may have lost a key, a fence or entries."""
        return sum(ledger.limbo for ledger in self._ledgers.values())

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets


def _added(asker: object, run: AddRun, status: Status) -> ServedAnswer:
    return ServedAnswer(asker, Added(run.ledger_id, status, run.entry_ids, run.txn_ids))


def _read_done(request: Read, status: Status, entry: bytes | None = None, lac: int | None = None) -> ReadDone:
    return ReadDone(request.ledger_id, request.entry_id, status, request.txn_id, entry, lac)


def _batch_done(request: BatchRead, status: Status, entries: Sequence[bytes] = ()) -> BatchReadDone:
    return BatchReadDone(request.ledger_id, request.first_entry, request.request_id, status, tuple(entries))
