from __future__ import annotations

from magnetar.base.errors import CorruptDataError
from magnetar.bookie.served import Output, ServedAnswer, ServedLedger, Waited, Write
from magnetar.bookie.serving import BookieLedgers
from magnetar.wire.bookkeeper.digests import master_key
from magnetar.wire.bookkeeper.requests import LAST_ENTRY, AddRun, Read
from magnetar.wire.bookkeeper.responses import Added, ReadDone
from magnetar.wire.bookkeeper.status import Status

KEY = master_key(b"")
OTHER_KEY = master_key(b"other")


class Entries:
    """What is durable, by ledger and entry; None is damage."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], bytes | None] = {}

    def last_entry(self, ledger_id: int) -> int:
        return max((entry for ledger, entry in self.held if ledger == ledger_id), default=-1)

    def entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        data = self.held.get((ledger_id, entry_id), b"")
        if data is None:
            raise CorruptDataError("segment", 0, "checksum", ledger_id)
        return data or None


class Bookie:
    """A bookie whose disk makes durable what it is told to."""

    def __init__(self, ledgers: list[ServedLedger] | None = None) -> None:
        self.entries = Entries()
        self.core = BookieLedgers(self.entries, ledgers or [])
        self.writes: list[Write] = []

    def ask(self, outputs: list[Output]) -> list[Added | ReadDone]:
        self.writes += [output for output in outputs if isinstance(output, Write)]
        answers: list[Added | ReadDone] = []
        for output in outputs:
            if isinstance(output, ServedAnswer):
                assert isinstance(output.response, Added | ReadDone)
                answers.append(output.response)
            elif isinstance(output, Waited):
                answers += self.ask(self.core.read(output.wait.asker, output.wait.request))
        return answers

    def add(self, *entry_ids: int, key: bytes = KEY, recovery: bool = False) -> list[Status]:
        run = AddRun(1, key, recovery=recovery)
        run.entry_ids = list(entry_ids)
        run.entries = [f"entry {number}".encode() for number in entry_ids]
        return [answer.status for answer in self.ask(self.core.add("client", run))]

    def read(self, entry_id: int, *, fence: bool = False, key: bytes | None = KEY) -> list[ReadDone]:
        request = Read(1, entry_id, fence=fence, master_key=key)
        return [a for a in self.ask(self.core.read("client", request)) if isinstance(a, ReadDone)]

    def sync(self) -> list[Added | ReadDone]:
        answers: list[Added | ReadDone] = []
        writes, self.writes = self.writes, []
        for write in writes:
            self.entries.held |= {
                (write.ledger_id, number): data
                for number, data in zip(write.entry_ids, write.entries, strict=True)
            }
            answers += self.ask(self.core.durable(write.ticket))
        return answers


def test_an_add_is_answered_when_it_is_durable() -> None:
    bookie = Bookie()
    assert bookie.add(0, 1) == []
    assert [status.status for status in bookie.read(0)] == [Status.NO_ENTRY]
    (answer,) = bookie.sync()
    assert isinstance(answer, Added)
    assert (answer.entry_ids, answer.status) == ([0, 1], Status.OK)
    assert bookie.read(1)[0].entry == b"entry 1"


def test_what_is_not_known() -> None:
    assert Bookie().read(0)[0].status is Status.NO_LEDGER
    assert Bookie([ServedLedger(1, KEY, fenced=False)]).read(0)[0].status is Status.NO_ENTRY


def test_the_last_entry_is_answered_under_the_id_that_was_asked_for() -> None:
    bookie = Bookie()
    bookie.add(0, 1, 2)
    bookie.sync()
    (answer,) = bookie.read(LAST_ENTRY)
    assert (answer.entry_id, answer.entry) == (LAST_ENTRY, b"entry 2")


def test_a_fence_is_answered_when_it_is_durable_and_sees_what_was_taken_before_it() -> None:
    """Else an entry could be called absent under the fence, become durable, and be confirmed."""
    bookie = Bookie()
    bookie.add(0)
    assert bookie.read(0, fence=True) == []
    assert bookie.add(1) == [Status.FENCED]
    added, read = bookie.sync()
    assert isinstance(added, Added)
    assert isinstance(read, ReadDone)
    assert (read.status, read.entry) == (Status.OK, b"entry 0")


def test_a_second_fence_waits_for_the_first_ones_sync() -> None:
    bookie = Bookie()
    assert bookie.read(LAST_ENTRY, fence=True) == []
    assert bookie.read(LAST_ENTRY, fence=True) == []
    assert len(bookie.writes) == 1
    assert [answer.status for answer in bookie.sync()] == [Status.NO_ENTRY, Status.NO_ENTRY]
    assert bookie.read(LAST_ENTRY, fence=True)[0].status is Status.NO_ENTRY


def test_a_ledger_that_was_never_seen_is_fenced() -> None:
    bookie = Bookie()
    bookie.read(LAST_ENTRY, fence=True)
    assert bookie.add(0) == [Status.FENCED]


def test_recovery_writes_behind_the_fence() -> None:
    bookie = Bookie([ServedLedger(1, KEY, fenced=True)])
    assert bookie.add(0) == [Status.FENCED]
    assert bookie.add(0, recovery=True) == []
    assert [answer.status for answer in bookie.sync()] == [Status.OK]


def test_a_fence_needs_the_ledgers_key() -> None:
    bookie = Bookie([ServedLedger(1, KEY, fenced=False)])
    for key in (None, OTHER_KEY):
        assert bookie.read(LAST_ENTRY, fence=True, key=key)[0].status is Status.UNAUTHORIZED
    assert bookie.add(0, key=OTHER_KEY) == [Status.UNAUTHORIZED]
    assert bookie.add(0) == []


def test_damage_is_never_called_absence() -> None:
    bookie = Bookie([ServedLedger(1, KEY, fenced=False)])
    bookie.entries.held[1, 5] = None
    assert bookie.read(5)[0].status is Status.IO_ERROR
    assert bookie.read(LAST_ENTRY)[0].status is Status.IO_ERROR
