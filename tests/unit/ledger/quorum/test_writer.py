from __future__ import annotations

import pytest

from magnetar.ledger.api import LedgerClosedError, LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import (
    Advance,
    ChooseBookies,
    Closed,
    Effect,
    Failed,
    Failure,
    ReadMetadata,
    SendAdds,
    WriteMetadata,
)
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.status import Status

OPEN = LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=3, ack_quorum=2)
DIGESTER = Digester(1, DigestType.CRC32C)


def writer(metadata: LedgerMetadata = OPEN) -> QuorumWriter:
    return QuorumWriter(1, metadata, 0, DIGESTER)


def sent(effects: list[Effect]) -> list[tuple[str, list[int]]]:
    return [(e.bookie, list(e.entry_ids)) for e in effects if isinstance(e, SendAdds)]


def failures(effects: list[Effect]) -> list[Failure]:
    return [effect.failure for effect in effects if isinstance(effect, Failed)]


def acked(core: QuorumWriter, *bookies: str, entries: list[int]) -> list[Effect]:
    members = core.metadata.ensembles[-1][1]
    return [e for name in bookies for e in core.added(name, members.index(name), entries, Status.OK)]


def test_entries_are_striped_and_confirmed_in_order() -> None:
    core = writer(
        LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=2, ack_quorum=2)
    )
    assert sent(core.append([b"x", b"y", b"z"])) == [("a", [0, 2]), ("b", [0, 1]), ("c", [1, 2])]
    assert acked(core, "c", entries=[1, 2]) == []
    assert acked(core, "b", entries=[1]) == []
    assert acked(core, "a", entries=[0, 2]) == []
    assert acked(core, "b", entries=[0]) == [Advance(2)]
    core.check()


def test_an_entry_carries_what_was_confirmed_when_it_was_sent() -> None:
    core = writer()
    core.append([b"12345"])
    acked(core, "a", "b", entries=[0])
    (first, *_) = core.append([b"678"])
    assert isinstance(first, SendAdds)
    entry = DIGESTER.open(first.entries[0], 1)
    assert (entry.last_add_confirmed, entry.length_bytes, entry.payload) == (0, 8, b"678")


def test_a_failed_bookie_is_replaced_and_its_successor_gets_what_is_not_confirmed() -> None:
    core = writer()
    core.append([b"0", b"1"])
    acked(core, "a", "b", entries=[0])
    assert core.added("c", 2, [0, 1], Status.IO_ERROR) == [ChooseBookies({2: "c"}, frozenset("abc"))]
    # While the ensemble changes nothing is confirmed, and the leaving one gets no more.
    assert acked(core, "a", "b", entries=[1]) == []
    assert sent(core.append([b"2"])) == [("a", [2]), ("b", [2])]
    (write,) = core.bookies_chosen({2: "d"})
    wanted = OPEN.with_ensemble(1, ("a", "b", "d"))
    assert write == WriteMetadata(wanted, 0)
    effects = core.metadata_written(1)
    assert sent(effects) == [("d", [1, 2])]
    assert effects[-1] == Advance(1)
    core.check()


def test_a_change_before_anything_is_confirmed_replaces_the_segment() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    (write,) = core.bookies_chosen({0: "d"})
    assert isinstance(write, WriteMetadata)
    assert write.metadata.ensembles == ((0, ("d", "b", "c")),)


def test_copies_of_a_replaced_bookie_do_not_count() -> None:
    core = writer()
    core.append([b"0"])
    acked(core, "a", entries=[0])
    core.added("a", 0, [], Status.READ_ONLY)
    core.bookies_chosen({0: "d"})
    assert acked(core, "b", entries=[0]) == []
    core.metadata_written(1)
    assert core.last_confirmed == -1
    assert core.added("a", 0, [0], Status.OK) == []
    assert acked(core, "d", entries=[0]) == [Advance(0)]


def test_what_a_leaving_bookie_fails_again_does_not_replace_its_successor() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    core.append([b"1"])
    assert core.added("a", 0, [1], Status.IO_ERROR) == []
    core.bookies_chosen({0: "d"})
    assert [type(effect) for effect in core.metadata_written(1)] == [SendAdds]


def test_one_that_finds_no_successor_is_tried_again() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    core.bookies_chosen({0: "d"})
    core.added("b", 1, [0], Status.IO_ERROR)
    core.added("c", 2, [0], Status.IO_ERROR)
    choose = core.metadata_written(1)[-1]
    assert choose == ChooseBookies({1: "b", 2: "c"}, frozenset("abcd"))
    core.bookies_chosen({1: "e"})
    assert sent(core.metadata_written(2)) == [("e", [0]), ("c", [0])]


def test_one_that_is_back_takes_its_own_place() -> None:
    core = writer()
    core.append([b"0"])
    acked(core, "a", entries=[0])
    core.append([b"1"])
    core.added("a", 0, [1], Status.IO_ERROR)
    # The metadata names it already; what it acknowledged before, it still has.
    assert sent(core.bookies_chosen({0: "a"})) == [("a", [1])]
    assert acked(core, "b", entries=[0]) == [Advance(0)]
    assert acked(core, "a", "b", entries=[1]) == [Advance(1)]
    core.append([b"2"])
    core.added("a", 0, [2], Status.IO_ERROR)
    core.added("c", 2, [2], Status.IO_ERROR)
    core.bookies_chosen({0: "a"})
    (write,) = core.bookies_chosen({2: "d"})
    assert write == WriteMetadata(OPEN.with_ensemble(2, ("a", "b", "d")), 0)
    core.check()


def test_one_is_back_and_another_one_is_new() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    core.bookies_chosen({0: "d"})
    core.added("b", 1, [0], Status.IO_ERROR)
    core.added("c", 2, [0], Status.IO_ERROR)
    core.metadata_written(1)
    core.bookies_chosen({1: "b", 2: "e"})
    assert sent(core.metadata_written(2)) == [("b", [0]), ("e", [0])]
    core.check()


def test_nobody_to_take_a_place() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    assert core.bookies_chosen({}) == []
    core.added("b", 1, [0], Status.IO_ERROR)
    assert failures(core.bookies_chosen({})) == [Failure.NOT_ENOUGH_BOOKIES]
    assert core.is_over


def test_a_member_that_nobody_can_replace_is_done_without_while_the_others_are_enough() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    assert acked(core, "b", "c", entries=[0]) == []
    assert core.bookies_chosen({}) == [Advance(0)]
    assert core.is_short
    assert sent(core.append([b"1"])) == [("b", [1]), ("c", [1])]
    assert acked(core, "b", entries=[1]) == []
    assert core.added("a", 0, [1], Status.IO_ERROR) == []
    assert acked(core, "c", entries=[1]) == [Advance(1)]
    core.check()


def test_a_member_that_was_done_without_is_taken_back() -> None:
    core = writer()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    core.bookies_chosen({})
    acked(core, "b", "c", entries=[0])
    core.append([b"1"])
    assert sent(core.take_back()) == [("a", [1])]
    assert not core.is_short
    assert acked(core, "a", "b", entries=[1]) == [Advance(1)]
    assert sent(core.append([b"2"])) == [("a", [2]), ("b", [2]), ("c", [2])]
    (choose,) = core.added("a", 0, [2], Status.IO_ERROR)
    assert isinstance(choose, ChooseBookies)
    core.bookies_chosen({0: "d"})
    assert sent(core.metadata_written(1)) == [("d", [2])]
    core.check()


def test_striped_entries_cannot_be_confirmed_without_a_member() -> None:
    core = writer(
        LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=2, ack_quorum=2)
    )
    core.append([b"0"])
    core.added("c", 2, [], Status.IO_ERROR)
    assert failures(core.bookies_chosen({})) == [Failure.NOT_ENOUGH_BOOKIES]


@pytest.mark.parametrize(
    ("status", "failure"),
    [(Status.FENCED, Failure.FENCED), (Status.UNAUTHORIZED, Failure.UNAUTHORIZED)],
)
def test_what_ends_a_writer(status: Status, failure: Failure) -> None:
    core = writer()
    core.append([b"0"])
    assert failures(core.added("a", 0, [0], status)) == [failure]
    with pytest.raises(LedgerClosedError):
        core.append([b"1"])
    assert acked(core, "b", "c", entries=[0]) == []


def test_close_waits_for_what_is_under_way() -> None:
    core = writer()
    core.append([b"abc"])
    assert core.close() == []
    with pytest.raises(LedgerClosedError):
        core.append([b"x"])
    effects = acked(core, "a", "b", entries=[0])
    end = LedgerEnd(0, 3)
    assert effects == [Advance(0), WriteMetadata(OPEN.closed(end), 0)]
    assert core.metadata_written(1) == [Closed(end)]
    assert core.close() == []


def closing() -> tuple[QuorumWriter, LedgerMetadata]:
    core = writer()
    core.close()
    return core, OPEN.closed(LedgerEnd(-1, 0))


def test_a_write_whose_answer_was_lost_is_recognised() -> None:
    core, wanted = closing()
    assert core.metadata_conflict() == [ReadMetadata()]
    assert core.metadata_read(wanted, 1) == [Closed(LedgerEnd(-1, 0))]


def test_somebody_else_who_closed_it_at_the_same_end_did_what_was_wanted() -> None:
    core, wanted = closing()
    core.metadata_conflict()
    theirs = wanted.with_ensembles(((0, ("a", "b", "z")),))
    assert core.metadata_read(theirs, 4) == [Closed(LedgerEnd(-1, 0))]
    assert core.metadata == theirs


def test_a_write_on_top_of_somebodys_repair() -> None:
    core, _ = closing()
    core.metadata_conflict()
    repaired = OPEN.with_ensembles(((0, ("a", "b", "z")),))
    (write,) = core.metadata_read(repaired, 5)
    assert write == WriteMetadata(repaired.closed(LedgerEnd(-1, 0)), 5)


@pytest.mark.parametrize(
    ("found", "failure"),
    [
        (OPEN.recovering(), Failure.FENCED),
        (OPEN.closed(LedgerEnd(3, 4)), Failure.FENCED),
        (None, Failure.GONE),
    ],
)
def test_a_ledger_that_was_taken_away(found: LedgerMetadata | None, failure: Failure) -> None:
    core, _ = closing()
    core.metadata_conflict()
    assert failures(core.metadata_read(found, 1)) == [failure]


def delaying(metadata: LedgerMetadata = OPEN) -> QuorumWriter:
    return QuorumWriter(1, metadata, 0, DIGESTER, delay_change=True)


def test_a_delayed_change_waits_until_the_others_are_not_enough() -> None:
    core = delaying()
    core.append([b"0"])
    assert core.added("a", 0, [0], Status.IO_ERROR) == []
    assert core.is_short
    assert acked(core, "b", "c", entries=[0]) == [Advance(0)]
    assert sent(core.append([b"1"])) == [("b", [1]), ("c", [1])]
    assert core.added("a", 0, [0], Status.IO_ERROR) == [], "it fails piece by piece"
    (choose,) = core.added("b", 1, [1], Status.IO_ERROR)
    assert isinstance(choose, ChooseBookies)
    assert choose.failed == {0: "a", 1: "b"}, "whoever was done without is replaced as well"
    core.bookies_chosen({0: "d", 1: "e"})
    assert sent(core.metadata_written(1)) == [("d", [1]), ("e", [1])]
    core.check()


def test_a_delayed_change_is_not_delayed_for_who_is_read_only() -> None:
    core = delaying()
    core.append([b"0"])
    (choose,) = core.added("a", 0, [0], Status.READ_ONLY)
    assert isinstance(choose, ChooseBookies)


def test_a_delayed_change_is_not_delayed_where_every_copy_counts() -> None:
    core = delaying(
        LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=2, ack_quorum=2)
    )
    core.append([b"0"])
    (choose,) = core.added("a", 0, [0], Status.IO_ERROR)
    assert isinstance(choose, ChooseBookies)


def test_one_that_a_delayed_change_did_without_is_taken_back_and_may_fail_again() -> None:
    core = delaying()
    core.append([b"0"])
    core.added("a", 0, [0], Status.IO_ERROR)
    assert sent(core.take_back()) == [("a", [0])]
    assert not core.is_short
    assert core.added("a", 0, [0], Status.IO_ERROR) == []
    assert core.is_short
    core.take_back()
    assert acked(core, "a", "b", entries=[0]) == [Advance(0)]
    core.check()
