"""Where bundles are cut."""

from __future__ import annotations

import pytest

from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.namespaces.bundle_splits import POSITIONS, RANGE, TOPIC_COUNT, chosen, cuts
from magnetar.broker.balance.settings import SplitAlgorithm
from magnetar.broker.errors import PreconditionFailedError

BOUNDS = (0, 1000)


@pytest.mark.parametrize(
    ("algorithm", "positions", "topics", "found"),
    [
        ("", [], {}, [500]),
        (RANGE, [], {1: 1.0}, [500]),
        ("", [7, 3], {}, [3, 7]),
        (POSITIONS, [7, 7], {}, [7]),
        (TOPIC_COUNT, [], {}, []),
        (TOPIC_COUNT, [], {5: 0.0}, []),
        (TOPIC_COUNT, [], {10: 0.0, 20: 0.0}, [15]),
        (TOPIC_COUNT, [], {10: 0.0, 20: 0.0, 40: 0.0}, [15]),
        # Neighbours: the second one starts its bundle.
        (TOPIC_COUNT, [], {10: 0.0, 11: 0.0}, [11]),
        (SplitAlgorithm.FLOW.value, [], {10: 0.0, 20: 0.0}, []),
        (SplitAlgorithm.FLOW.value, [], {10: 9.0, 20: 1.0, 30: 1.0}, [15]),
        (SplitAlgorithm.FLOW.value, [], {10: 1.0, 20: 1.0, 30: 9.0}, [25]),
        (SplitAlgorithm.FLOW.value, [], {10: 1.0}, []),
    ],
)
def test_cuts(algorithm: str, positions: list[int], topics: dict[int, float], found: list[int]) -> None:
    assert cuts(algorithm, BOUNDS, positions=positions, topics=topics) == found


@pytest.mark.parametrize("positions", [[0], [1000], [3, -1], []])
def test_positions_lie_inside(positions: list[int]) -> None:
    with pytest.raises(BadRequestError):
        cuts(POSITIONS, BOUNDS, positions=positions, topics={})


def test_what_is_one_hash_wide_stays() -> None:
    with pytest.raises(PreconditionFailedError):
        cuts(RANGE, (4, 5), positions=[], topics={})


def test_the_heaviest_is_chosen() -> None:
    assert chosen({(0, 5): 1.0, (5, 9): 3.0, (9, 12): 3.0}) == (5, 9)
    with pytest.raises(PreconditionFailedError):
        chosen({(0, 5): 0.0})
