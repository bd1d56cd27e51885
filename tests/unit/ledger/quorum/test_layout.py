from __future__ import annotations

import pytest

from magnetar.ledger.quorum.layout import Coverage, QuorumLayout


def test_copies_go_around_the_ensemble() -> None:
    layout = QuorumLayout(5, 3, 2)
    assert [layout.write_set(entry) for entry in (0, 3, 4, 5)] == [(0, 1, 2), (3, 4, 0), (4, 0, 1), (0, 1, 2)]
    for entry in range(10):
        assert {at for at in range(5) if layout.holds(at, entry)} == set(layout.write_set(entry))


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_quorums_that_make_no_sense(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="E >= Qw >= Qa >= 1"):
        QuorumLayout(*sizes)


@pytest.mark.parametrize(
    ("sizes", "absences"), [((3, 3, 2), 2), ((3, 2, 2), 1), ((5, 5, 3), 3), ((1, 1, 1), 1)]
)
def test_absences_that_prove(sizes: tuple[int, int, int], absences: int) -> None:
    assert QuorumLayout(*sizes).absence_quorum == absences


def test_silent_neighbours_can_hide_an_entry_that_silent_strangers_cannot() -> None:
    """With E=4, Qw=2, Qa=2: members 0 and 1 together hold entries, 0 and 2 do not."""
    for silent, reached in (({0, 1}, False), ({0, 2}, True)):
        coverage = Coverage(QuorumLayout(4, 2, 2))
        for index in {0, 1, 2, 3} - silent:
            coverage.know(index)
        assert coverage.is_reached is reached


def test_the_same_answer_twice_covers_once() -> None:
    coverage = Coverage(QuorumLayout(3, 3, 2))
    coverage.know(0)
    coverage.know(0)
    assert not coverage.is_reached
    coverage.know(2)
    assert coverage.is_reached
