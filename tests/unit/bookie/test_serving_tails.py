"""Batches, explicit last add confirmed, long polls, forces, full disks and deleted ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.served import Output, ServedAnswer, ServedLedger, Wait, Waited, Write
from magnetar.bookie.serving import BookieLedgers
from magnetar.bookie.tailing import LedgerTail
from magnetar.wire.bookkeeper.availability import decode_entries
from magnetar.wire.bookkeeper.digests import Digester, DigestType, master_key
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
    Response,
)
from magnetar.wire.bookkeeper.status import Status

KEY = master_key(b"")
DIGESTER = Digester(1, DigestType.DUMMY)


def sealed(entry_id: int, lac: int, size: int = 1) -> bytes:
    payload = b"x" * size
    return DIGESTER.seal(entry_id, lac, size, payload) + payload


class Entries:
    """What is durable of ledger 1; None is damage."""

    def __init__(self) -> None:
        self.held: dict[int, bytes | None] = {}

    def last_entry(self, ledger_id: int) -> int:
        return max(self.held, default=-1) if ledger_id == 1 else -1

    def entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        data = self.held.get(entry_id, b"") if ledger_id == 1 else b""
        if data is None:
            raise CorruptDataError("segment", 0, "checksum", ledger_id)
        return data or None

    def entry_ranges(self, ledger_id: int) -> Sequence[range]:
        return [range(number, number + 1) for number in sorted(self.held)]


class Bookie:
    """A bookie whose disk makes durable what it is told to."""

    def __init__(self, *ledgers: ServedLedger) -> None:
        self.entries = Entries()
        self.core = BookieLedgers(self.entries, ledgers)
        self.writes: list[Write] = []
        self.waits: list[Wait] = []

    def take(self, outputs: Iterable[Output]) -> list[Response]:
        answers: list[Response] = []
        for output in outputs:
            if isinstance(output, Write):
                self.writes.append(output)
            elif isinstance(output, ServedAnswer):
                answers.append(output.response)
            elif isinstance(output, Waited):
                answers += self.take(self.core.read(output.wait.asker, output.wait.request))
            else:
                self.waits.append(output)
        return answers

    def add(self, entry_id: int, lac: int = -1, *, size: int = 1, **flags: bool) -> list[Response]:
        run = AddRun(1, KEY, v3=True, **flags)
        run.entry_ids, run.entries, run.txn_ids = [entry_id], [sealed(entry_id, lac, size)], [entry_id]
        return self.take(self.core.add("writer", run))

    def sync(self) -> list[Response]:
        writes, self.writes = self.writes, []
        answers: list[Response] = []
        for write in writes:
            self.entries.held.update(zip(write.entry_ids, write.entries, strict=True))
            answers += self.take(self.core.durable(write.ticket))
        return answers

    def fail(self, status: Status) -> list[Response]:
        writes, self.writes = self.writes, []
        return [answer for write in writes for answer in self.take(self.core.failed(write.ticket, status))]

    def poll(self, previous: int, *, timeout_ms: int = 100, piggyback: bool = True) -> list[Response]:
        request = Read(
            1, LAST_ENTRY, txn_id=7, previous_lac=previous, timeout_ms=timeout_ms, piggyback=piggyback
        )
        return self.take(self.core.read("reader", request))


def statuses(answers: list[Response]) -> list[Status]:
    return [answer.status for answer in answers if isinstance(answer, Added | ReadDone | LacWritten | Forced)]


def with_entries(count: int, *, size: int = 1) -> Bookie:
    bookie = Bookie()
    for number in range(count):
        bookie.add(number, number - 1, size=size)
    bookie.sync()
    return bookie


def batch(bookie: Bookie, first: int, count: int, bytes_max: int = 1 << 20) -> BatchReadDone:
    (answer,) = bookie.take(bookie.core.batch_read("reader", BatchRead(1, first, 5, count, bytes_max)))
    assert isinstance(answer, BatchReadDone)
    return answer


def test_a_batch_ends_with_its_count_its_bytes_or_the_entries() -> None:
    bookie = with_entries(5, size=100)
    assert len(batch(bookie, 1, 3).entries) == 3
    assert len(batch(bookie, 1, 0).entries) == 4
    assert len(batch(bookie, 0, 9, bytes_max=36 + 2 * 136).entries) == 2
    assert len(batch(bookie, 0, 9, bytes_max=1).entries) == 1
    absent = batch(bookie, 5, 3)
    assert (absent.status, absent.entries, absent.request_id) == (Status.NO_ENTRY, (), 5)
    bookie.entries.held[2] = None
    assert len(batch(bookie, 0, 9).entries) == 2
    assert batch(bookie, 2, 9).status is Status.IO_ERROR


class _Reader:
    """Notes when it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Reader.compared += 1
        return self is other

    __hash__ = object.__hash__


def test_thousands_of_waiting_reads_are_not_compared_with_each_other() -> None:
    # An add that lets 9,000 reads go, as many as fit into one read of a socket, compared each with each.
    tail = LedgerTail()
    request = Read(1, LAST_ENTRY, previous_lac=0)
    tail.waiting = dict.fromkeys(Wait(_Reader(), request, 1) for _ in range(10))
    tail.waiting[Wait(_Reader(), Read(1, LAST_ENTRY, previous_lac=1), 1)] = None
    tail.saw(1)
    assert len(tail.ready()) == 10
    assert len(tail.waiting) == 1
    assert not _Reader.compared


def test_version_3_tells_the_last_add_confirmed_with_an_entry() -> None:
    bookie = with_entries(3)
    (answer,) = bookie.take(bookie.core.read("reader", Read(1, 0, txn_id=1)))
    assert isinstance(answer, ReadDone)
    assert answer.lac_max == 1
    (answer,) = bookie.take(bookie.core.read("reader", Read(1, 0)))
    assert isinstance(answer, ReadDone)
    assert answer.lac_max is None


def test_after_a_restart_the_last_entry_tells_how_far_it_is_confirmed() -> None:
    bookie = Bookie(ServedLedger(1, KEY, fenced=False, lac_blob=DIGESTER.seal_lac(9)))
    bookie.entries.held[4] = sealed(4, 3)
    (answer,) = bookie.take(bookie.core.read("reader", Read(1, 4, txn_id=1)))
    assert isinstance(answer, ReadDone)
    assert answer.lac_max == 9


def test_a_long_poll_ends_with_the_next_confirmed_entry() -> None:
    bookie = with_entries(2)
    assert bookie.poll(0) == []
    assert [wait.timeout_ms for wait in bookie.waits] == [100]
    bookie.add(2, 1)
    _, answer = bookie.sync()
    assert isinstance(answer, ReadDone)
    assert (answer.status, answer.entry_id, answer.lac_max) == (Status.OK, 1, 1)
    assert answer.entry == sealed(1, 0)
    (wait,) = bookie.waits
    assert bookie.core.wait_over(wait) == []


def test_a_long_poll_ends_with_its_time_a_fence_or_an_explicit_lac() -> None:
    bookie = with_entries(2)
    bookie.poll(5)
    (wait,) = bookie.waits
    (answer,) = bookie.take(bookie.core.wait_over(wait))
    assert isinstance(answer, ReadDone)
    assert (answer.status, answer.entry, answer.lac_max) == (Status.OK, None, 0)

    assert bookie.poll(0) == []
    bookie.take(bookie.core.write_lac("writer", WriteLac(1, 1, KEY, DIGESTER.seal_lac(1), 3)))
    written, woken = bookie.sync()
    assert isinstance(written, LacWritten)
    assert isinstance(woken, ReadDone)
    assert (woken.entry_id, woken.lac_max) == (1, 1)

    assert bookie.poll(1) == []
    (woken,) = bookie.take(bookie.core.read("other", Read(1, LAST_ENTRY, fence=True, master_key=KEY)))
    assert isinstance(woken, ReadDone)
    assert woken.txn_id == 7
    assert statuses(bookie.poll(1)) == [Status.OK]


def test_a_piggyback_that_asks_for_an_entry_is_a_bad_request() -> None:
    bookie = with_entries(1)
    request = Read(1, 0, txn_id=1, previous_lac=0, piggyback=True)
    assert statuses(bookie.take(bookie.core.read("reader", request))) == [Status.BAD_REQUEST]


def test_the_explicit_lac_is_given_back_with_the_last_entry() -> None:
    bookie = with_entries(2)
    blob = DIGESTER.seal_lac(1)
    bookie.take(bookie.core.write_lac("writer", WriteLac(1, 1, KEY, blob, 3)))
    bookie.take(bookie.core.write_lac("thief", WriteLac(1, 1, b"?" * 20, blob, 4)))
    bookie.sync()
    (answer,) = bookie.take(bookie.core.read_lac("reader", ReadLac(1, 9)))
    assert answer == LacRead(1, Status.OK, 9, blob, sealed(1, 0))
    (answer,) = bookie.take(bookie.core.read_lac("reader", ReadLac(2, 9)))
    assert answer == LacRead(2, Status.NO_LEDGER, 9)


def test_a_deferred_add_is_answered_first_and_forced_later() -> None:
    bookie = Bookie()
    assert statuses(bookie.add(0, deferred_sync=True)) == [Status.OK]
    assert bookie.take(bookie.core.force("writer", ForceLedger(1, 8))) == []
    assert bookie.sync() == [Forced(1, Status.OK, 8)]
    (answer,) = bookie.take(bookie.core.force("writer", ForceLedger(2, 9)))
    assert answer == Forced(2, Status.NO_LEDGER, 9)


def test_entries_are_listed() -> None:
    bookie = with_entries(3)
    (answer,) = bookie.take(bookie.core.list_entries("reader", ListEntries(1, 2), bookie.entries))
    assert isinstance(answer, EntriesListed)
    assert [list(run) for run in decode_entries(answer.entries or b"")] == [[0], [1], [2]]


def test_a_full_disk_takes_what_recoveries_write() -> None:
    bookie = with_entries(1)
    bookie.core.read_only = True
    assert statuses(bookie.add(1)) == [Status.READ_ONLY]
    assert bookie.add(1, recovery=True, high_priority=True) == []
    assert statuses(bookie.sync()) == [Status.OK]


def test_a_failed_write_is_answered_and_a_failed_fence_can_be_asked_for_again() -> None:
    bookie = with_entries(1)
    bookie.add(1)
    assert statuses(bookie.fail(Status.READ_ONLY)) == [Status.READ_ONLY]
    fence = Read(1, LAST_ENTRY, fence=True, master_key=KEY)
    bookie.take(bookie.core.read("other", fence))
    assert statuses(bookie.fail(Status.READ_ONLY)) == [Status.IO_ERROR]
    bookie.take(bookie.core.read("other", fence))
    assert statuses(bookie.sync()) == [Status.OK]
    assert statuses(bookie.add(1)) == [Status.FENCED]


def test_a_deleted_ledger_stays_away() -> None:
    bookie = with_entries(1)
    bookie.poll(5)
    (answer,) = bookie.take(bookie.core.forget(1))
    assert isinstance(answer, ReadDone)
    assert answer.status is Status.NO_LEDGER
    assert statuses(bookie.add(1)) == [Status.FENCED]
    fence = Read(1, LAST_ENTRY, fence=True, master_key=KEY)
    assert statuses(bookie.take(bookie.core.read("other", fence))) == [Status.NO_LEDGER]
    assert bookie.core.known() == []


def test_in_limbo_nothing_is_absent_for_certain() -> None:
    bookie = Bookie(ServedLedger(1, b"", fenced=True, limbo=True))
    assert statuses(bookie.add(0)) == [Status.FENCED]
    assert statuses(bookie.take(bookie.core.read("reader", Read(1, 0)))) == [Status.UNKNOWN_LEDGER_STATE]
    assert bookie.add(0, recovery=True) == []
    bookie.sync()
    assert statuses(bookie.take(bookie.core.read("reader", Read(1, 0)))) == [Status.OK]


def test_a_bookie_that_does_not_know_what_it_lost_is_certain_of_nothing() -> None:
    bookie = Bookie()
    bookie.core = BookieLedgers(bookie.entries, knows_all=False)
    assert statuses(bookie.take(bookie.core.read("reader", Read(1, 0)))) == [Status.UNKNOWN_LEDGER_STATE]
    assert statuses(bookie.add(0)) == [Status.READ_ONLY]
    bookie.take(bookie.core.read("other", Read(1, LAST_ENTRY, fence=True, master_key=KEY)))
    assert statuses(bookie.sync()) == [Status.UNKNOWN_LEDGER_STATE]


def test_what_a_recovery_writes_again_makes_nothing_else_of_the_ledger_certain() -> None:
    """It denied the other entries of a ledger that it may have lost, and took its writer's."""
    bookie = Bookie()
    bookie.core = BookieLedgers(bookie.entries, knows_all=False)
    bookie.add(3, recovery=True)
    assert statuses(bookie.sync()) == [Status.OK]
    assert statuses(bookie.take(bookie.core.read("reader", Read(1, 3)))) == [Status.OK]
    assert statuses(bookie.take(bookie.core.read("reader", Read(1, 0)))) == [Status.UNKNOWN_LEDGER_STATE]
    assert statuses(bookie.add(4)) == [Status.FENCED]


def test_ids_below_zero_are_no_ids() -> None:
    assert statuses(Bookie().add(-3)) == [Status.BAD_REQUEST]


def test_an_explicit_lac_makes_no_ledger_known_whose_fence_may_be_lost() -> None:
    """Its writer could add behind the fence then."""
    bookie = Bookie()
    bookie.core = BookieLedgers(bookie.entries, knows_all=False)
    blob = DIGESTER.seal_lac(1)
    assert statuses(bookie.take(bookie.core.write_lac("writer", WriteLac(1, 1, KEY, blob, 3)))) == [
        Status.READ_ONLY
    ]
    assert statuses(bookie.add(0)) == [Status.READ_ONLY]


def test_an_explicit_lac_does_not_bring_a_deleted_ledger_back() -> None:
    bookie = with_entries(1)
    bookie.core.forget(LedgerId(1))
    request = WriteLac(1, 1, KEY, DIGESTER.seal_lac(1), 3)
    assert statuses(bookie.take(bookie.core.write_lac("writer", request))) == [Status.NO_LEDGER]
    assert bookie.core.known() == []


def test_a_poll_without_a_place_is_refused_and_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ONE_MAX", 1)
    bookie = with_entries(2)
    assert bookie.poll(0) == []
    assert statuses(bookie.poll(0)) == [Status.TOO_MANY_REQUESTS]
    assert statuses(bookie.poll(-1)) == [Status.OK]
    assert bookie.core.gone("reader") == bookie.waits
    assert bookie.poll(0) == []


def test_a_client_that_has_gone_is_not_told_of_its_fence() -> None:
    bookie = with_entries(1)
    bookie.take(bookie.core.read("other", Read(1, LAST_ENTRY, fence=True, master_key=KEY)))
    assert bookie.core.fencing.total == 1
    assert bookie.core.gone("other") == []
    assert bookie.sync() == []
    assert statuses(bookie.add(1)) == [Status.FENCED]
