from __future__ import annotations

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import (
    ChooseBookies,
    Closed,
    Effect,
    Failed,
    Failure,
    ReadMetadata,
    SendAdds,
    SendRead,
    WriteMetadata,
)
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.status import Status

OPEN = LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=3, ack_quorum=2)
DIGESTER = Digester(1, DigestType.CRC32C)
MEMBERS = "abc"


def entry(entry_id: int, lac: int) -> bytes:
    """Entry n is the letter n, once more than n."""
    payload = b"x" * (entry_id + 1)
    length = sum(range(1, entry_id + 2))
    return DIGESTER.seal(entry_id, lac, length, payload) + payload


def recovery(metadata: LedgerMetadata = OPEN) -> LedgerRecovery:
    core = LedgerRecovery(1, metadata, 0, DIGESTER)
    if metadata.state is LedgerState.OPEN:
        assert core.start() == [WriteMetadata(metadata.recovering(), 0)]
        asked = core.metadata_written(1)
    else:
        asked = core.start()
    members = metadata.ensembles[-1][1]
    assert asked == [SendRead(name, at, -1, fence=True) for at, name in enumerate(members)]
    return core


def told(core: LedgerRecovery, bookie: str, entry_id: int, answer: Status | bytes) -> list[Effect]:
    index = MEMBERS.index(bookie)
    if isinstance(answer, bytes):
        return core.read(bookie, index, entry_id, Status.OK, answer)
    return core.read(bookie, index, entry_id, answer, None)


def at_entry(core: LedgerRecovery, lac: int) -> list[Effect]:
    """Two members told of the last add confirmed: the recovery reads on behind it."""
    told(core, "a", -1, entry(lac + 1, lac))
    return told(core, "b", -1, entry(lac + 1, lac))


def reads(effects: list[Effect]) -> list[tuple[str, int, bool]]:
    return [(e.bookie, e.entry_id, e.fence) for e in effects if isinstance(e, SendRead)]


def written(effects: list[Effect]) -> LedgerMetadata:
    (write,) = [effect for effect in effects if isinstance(effect, WriteMetadata)]
    return write.metadata


def failures(effects: list[Effect]) -> list[Failure]:
    return [effect.failure for effect in effects if isinstance(effect, Failed)]


def test_a_closed_ledger_is_as_it_is() -> None:
    end = LedgerEnd(4, 5)
    assert LedgerRecovery(1, OPEN.closed(end), 3, DIGESTER).start() == [Closed(end)]


def test_an_empty_ledger() -> None:
    core = recovery()
    told(core, "a", -1, Status.NO_LEDGER)
    effects = told(core, "c", -1, Status.NO_ENTRY)
    assert reads(effects) == [("a", 0, True), ("b", 0, True), ("c", 0, True)]
    told(core, "a", 0, Status.NO_ENTRY)
    effects = told(core, "b", 0, Status.NO_LEDGER)
    assert written(effects) == OPEN.recovering().closed(LedgerEnd(-1, 0))
    assert core.metadata_written(2) == [Closed(LedgerEnd(-1, 0))]


def test_entries_behind_the_confirmed_are_written_again_and_close_the_ledger() -> None:
    core = recovery()
    effects = at_entry(core, 2)
    assert reads(effects) == [("a", 3, True), ("b", 3, True), ("c", 3, True)]
    effects = told(core, "b", 3, entry(3, 2))
    adds = [effect for effect in effects if isinstance(effect, SendAdds)]
    assert [(add.bookie, list(add.entry_ids), add.recovery) for add in adds] == [
        ("a", [3], True),
        ("b", [3], True),
        ("c", [3], True),
    ]
    assert [request[1] for request in reads(effects)] == [4, 4, 4]
    told(core, "a", 4, Status.NO_ENTRY)
    assert told(core, "c", 4, Status.NO_ENTRY) == []
    assert core.added("a", 0, [3], Status.OK) == []
    effects = core.added("c", 2, [3], Status.OK)
    assert written(effects).end == LedgerEnd(3, 10)


def test_the_length_comes_from_the_last_entry_that_is_kept() -> None:
    """Entry 3 was seen when the end was asked for, and proves nothing: 2 is the last one, with its length."""
    core = recovery()
    at_entry(core, 2)
    told(core, "a", 3, Status.NO_ENTRY)
    effects = told(core, "b", 3, Status.NO_ENTRY)
    assert reads(effects) == [("c", 2, False), ("a", 2, False), ("b", 2, False)]
    assert written(told(core, "c", 2, entry(2, 1))).end == LedgerEnd(2, 6)


def test_one_absence_does_not_end_a_ledger_that_another_copy_may_continue() -> None:
    core = recovery()
    at_entry(core, 0)
    assert told(core, "a", 1, Status.NO_ENTRY) == []
    assert told(core, "b", 1, Status.IO_ERROR) == []
    assert failures(told(core, "c", 1, Status.UNKNOWN_LEDGER_STATE)) == [Failure.UNREADABLE]


def test_a_copy_with_a_wrong_digest_is_neither_there_nor_absent() -> None:
    core = recovery()
    at_entry(core, 0)
    damaged = entry(1, 0)[:-1] + b"y"
    told(core, "a", 1, damaged)
    told(core, "b", 1, Status.NO_ENTRY)
    assert failures(told(core, "c", 1, damaged)) == [Failure.UNREADABLE]


def test_reads_of_a_recovery_fence_so_that_an_absence_stays_one() -> None:
    """Found by model checking in Apache's: the fence to c was lost; a and c lack entry 1, b has it.

    c must be fenced by the read itself, or the old writer could add entry 1 there after c was counted.
    """
    core = recovery()
    told(core, "a", -1, entry(0, -1))
    effects = told(core, "b", -1, entry(1, 0))
    assert all(fence for _, _, fence in reads(effects))


def test_reading_begins_with_the_last_segment_at_the_earliest() -> None:
    """Found in Apache's: with an empty last segment, entries committed long ago were added again."""
    metadata = OPEN.with_ensemble(10, ("a", "b", "c"))
    core = recovery(metadata)
    told(core, "a", -1, Status.NO_ENTRY)
    effects = told(core, "b", -1, Status.NO_ENTRY)
    assert {request[1] for request in reads(effects)} == {10}
    told(core, "a", 10, Status.NO_ENTRY)
    assert {request[1] for request in reads(told(core, "c", 10, Status.NO_ENTRY))} == {9}
    assert written(told(core, "c", 9, entry(9, 8))).end == LedgerEnd(9, 55)


def test_too_few_certain_answers_end_the_recovery_and_not_the_ledger() -> None:
    core = recovery()
    told(core, "a", -1, Status.IO_ERROR)
    told(core, "b", -1, entry(0, -1))
    assert failures(told(core, "c", -1, Status.TOO_MANY_REQUESTS)) == [Failure.UNREADABLE]
    assert core.is_over


def test_a_last_entry_that_is_damaged_covers_nothing() -> None:
    core = recovery()
    told(core, "a", -1, b"nonsense")
    told(core, "b", -1, entry(0, -1))
    assert failures(told(core, "c", -1, b"nonsense")) == [Failure.UNREADABLE]


def test_a_bookie_that_fails_is_replaced_in_memory_and_read_from_all_the_same() -> None:
    core = recovery()
    at_entry(core, 0)
    told(core, "b", 1, entry(1, 0))
    assert core.added("c", 2, [1], Status.IO_ERROR) == [ChooseBookies({2: "c"}, frozenset("abc"))]
    # Another answer of the leaving one changes nothing.
    assert core.added("c", 2, [1], Status.IO_ERROR) == []
    effects = core.bookies_chosen({2: "d"})
    (add,) = effects
    assert isinstance(add, SendAdds)
    assert (add.bookie, list(add.entry_ids)) == ("d", [1])
    effects = told(core, "c", 2, entry(2, 1))
    assert reads(effects) == [("a", 3, True), ("b", 3, True), ("c", 3, True)], "c may have what d cannot have"
    for name, index in (("a", 0), ("d", 2)):
        core.added(name, index, [1, 2], Status.OK)
    told(core, "a", 3, Status.NO_ENTRY)
    closed = written(told(core, "c", 3, Status.NO_ENTRY))
    assert closed.ensembles == ((0, ("a", "b", "c")), (1, ("a", "b", "d")))
    assert closed.end == LedgerEnd(2, 6)


def test_what_is_written_again_claims_no_more_than_was_known_at_the_start() -> None:
    """Entry 1 is confirmed on d, which only this recovery knows. If it came to no end, and a had entry 2 with
    word that 1 is confirmed, the next one would leave 1 out of the bookies that the metadata names."""
    core = recovery()
    at_entry(core, 0)
    told(core, "b", 1, entry(1, 0))
    core.added("c", 2, [1], Status.IO_ERROR)
    core.bookies_chosen({2: "d"})
    core.added("b", 1, [1], Status.OK)
    core.added("d", 2, [1], Status.OK)
    effects = told(core, "c", 2, entry(2, 1))
    adds = [effect for effect in effects if isinstance(effect, SendAdds)]
    assert {add.bookie for add in adds} == {"a", "b", "d"}
    assert {DIGESTER.open(each, 2).last_add_confirmed for add in adds for each in add.entries} == {0}


def test_the_first_of_two_recoveries_wins() -> None:
    core = recovery()
    at_entry(core, 0)
    told(core, "a", 1, Status.NO_ENTRY)
    told(core, "b", 1, Status.NO_ENTRY)
    told(core, "a", 0, entry(0, -1))
    assert core.metadata_conflict() == [ReadMetadata()]
    theirs = LedgerEnd(1, 3)
    assert core.metadata_read(OPEN.closed(theirs), 7) == [Closed(theirs)]


def test_two_recoveries_may_begin_at_once() -> None:
    core = LedgerRecovery(1, OPEN, 0, DIGESTER)
    core.start()
    core.metadata_conflict()
    assert len(reads(core.metadata_read(OPEN.recovering(), 1))) == 3


def test_an_older_segment_that_was_repaired_meanwhile_stays_repaired() -> None:
    metadata = OPEN.with_ensemble(5, ("a", "b", "c"))
    core = recovery(metadata)
    for name in "ab":
        told(core, name, -1, Status.NO_ENTRY)
    for name in "ab":
        told(core, name, 5, Status.NO_ENTRY)
    told(core, "a", 4, entry(4, 3))
    core.metadata_conflict()
    repaired = metadata.recovering().with_ensembles(((0, ("z", "b", "c")), (5, ("a", "b", "c"))))
    assert written(core.metadata_read(repaired, 9)) == repaired.closed(LedgerEnd(4, 15))


def test_a_wrong_password_ends_it() -> None:
    assert failures(told(recovery(), "a", -1, Status.UNAUTHORIZED)) == [Failure.UNAUTHORIZED]


def test_a_deleted_ledger() -> None:
    core = LedgerRecovery(1, OPEN, 0, DIGESTER)
    core.start()
    core.metadata_conflict()
    assert failures(core.metadata_read(None, 0)) == [Failure.GONE]


def test_a_bookie_that_nobody_can_replace_is_done_without_while_the_others_are_enough() -> None:
    core = recovery()
    at_entry(core, 0)
    told(core, "b", 1, entry(1, 0))
    core.added("c", 2, [1], Status.IO_ERROR)
    assert core.bookies_chosen({}) == []
    effects = told(core, "b", 2, entry(2, 1))
    assert [e.bookie for e in effects if isinstance(e, SendAdds)] == ["a", "b"]
    told(core, "a", 3, Status.NO_ENTRY)
    told(core, "b", 3, Status.NO_ENTRY)
    core.added("a", 0, [1, 2], Status.OK)
    closed = written(core.added("b", 1, [1, 2], Status.OK))
    assert closed.end == LedgerEnd(2, 6)
    assert closed.ensembles == OPEN.ensembles


def test_a_bookie_that_is_needed_and_that_nobody_can_replace_ends_it() -> None:
    core = recovery()
    at_entry(core, 0)
    told(core, "b", 1, entry(1, 0))
    core.added("c", 2, [1], Status.IO_ERROR)
    core.bookies_chosen({})
    assert core.added("b", 1, [1], Status.IO_ERROR) == [ChooseBookies({1: "b"}, frozenset("abc"))]
    assert failures(core.bookies_chosen({})) == [Failure.NOT_ENOUGH_BOOKIES]
