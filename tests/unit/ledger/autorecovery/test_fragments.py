"""Which bookies hold what of a ledger, and which are to hold it instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.autorecovery.fragments import Fragment, fragments_of, held_by, moved
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout

OPEN = LedgerMetadata(
    LedgerState.OPEN, None, ((0, ("a", "b", "c")), (10, ("a", "d", "c"))), write_quorum=2, ack_quorum=2
)
CLOSED = OPEN.closed(LedgerEnd(20, 999))


def spans(metadata: LedgerMetadata) -> list[tuple[int, int | None]]:
    return [(fragment.first, fragment.last) for fragment in fragments_of(metadata)]


def test_fragments_end_where_the_next_begins() -> None:
    assert spans(CLOSED) == [(0, 9), (10, 20)]
    assert spans(OPEN) == [(0, 9), (10, None)]
    assert spans(OPEN.recovering()) == [(0, 9), (10, None)]
    # It was closed before the last ensemble got an entry.
    assert spans(OPEN.closed(LedgerEnd(9, 1))) == [(0, 9), (10, 9)]
    assert spans(CLOSED.with_ensembles(((0, ("a", "b", "c")),)).closed(LedgerEnd(-1, 0))) == [(0, -1)]


layouts = st.integers(1, 5).flatmap(
    lambda size: st.integers(1, size).map(lambda quorum: QuorumLayout(size, quorum, quorum))
)


@given(layouts, st.integers(0, 20), st.integers(-1, 30), st.integers(0, 4), st.floats(0, 1))
def test_what_a_member_holds(layout: QuorumLayout, first: int, length: int, index: int, share: float) -> None:
    index %= layout.ensemble_size
    fragment = Fragment(first, first + length, tuple("abcde"[: layout.ensemble_size]), layout)
    held = [each for each in range(first, first + length + 1) if layout.holds(index, each)]
    assert list(fragment.entries(index)) == held
    assert fragment.count(index) == len(held)
    assert fragment.bounds(index) == tuple(dict.fromkeys((held[0], held[-1]) if held else ()))
    sample = fragment.sample(index, share)
    assert set(fragment.bounds(index)) <= set(sample) <= set(held)
    if share == 1:
        assert list(sample) == held


def test_who_holds_something_of_a_ledger() -> None:
    assert held_by(CLOSED, {"d", "x"}) == {"d"}


def test_a_closed_fragment_gets_another_holder() -> None:
    changed = moved(CLOSED, 10, {1: ("d", "e")})
    assert changed is not None
    assert changed.ensembles == ((0, ("a", "b", "c")), (10, ("a", "e", "c")))
    assert changed.end == CLOSED.end
    assert moved(OPEN, 0, {1: ("b", "e")}) is not None


@pytest.mark.parametrize(
    ("metadata", "first", "places"),
    [
        (OPEN, 10, {1: ("d", "e")}),
        (OPEN.recovering(), 10, {1: ("d", "e")}),
        (CLOSED, 11, {1: ("d", "e")}),
        (CLOSED, 10, {1: ("b", "e")}),
        (CLOSED, 10, {1: ("d", "a")}),
    ],
)
def test_what_somebody_else_decides_or_has_changed_stays(
    metadata: LedgerMetadata, first: int, places: dict[int, tuple[str, str]]
) -> None:
    assert moved(metadata, first, places) is None
