"""Which bundles are split, and where."""

from __future__ import annotations

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.balance.settings import BalanceSettings, SplitAlgorithm
from magnetar.broker.balance.splits import SplitTargets, targets
from magnetar.broker.balance.splitting import Splitting, cut, upper_part
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import BundleLoad
from magnetar.broker.policies.bundles import LAST, hash_of

_NAMESPACE = NamespaceName("public", "default")
_WHOLE = Bundle(_NAMESPACE, 0, LAST)
_ONE = {_NAMESPACE: 1}
_MIB = 1 << 20

_LARGE = {
    "topics": BundleLoad(topics=1_001),
    "sessions": BundleLoad(topics=2, producers=600, consumers=401),
    "messages": BundleLoad(topics=2, rate_in=20_000, rate_out=10_001),
    "bytes": BundleLoad(topics=2, bytes_in=60 * _MIB, bytes_out=41 * _MIB),
}


@pytest.mark.parametrize("what", _LARGE)
def test_a_bundle_above_a_limit_is_split_after_some_rounds(what: str) -> None:
    splitting = Splitting()
    assert [splitting.look({_WHOLE: _LARGE[what]}, _ONE) for _ in range(3)] == [[], [], [_WHOLE]]


def test_the_rounds_must_be_in_a_row() -> None:
    splitting = Splitting()
    for _ in range(4):
        for load in (_LARGE["topics"], _LARGE["topics"], BundleLoad(topics=1_000)):
            assert splitting.look({_WHOLE: load}, _ONE) == []


@pytest.mark.parametrize(
    ("load", "settings", "count"),
    [
        (BundleLoad(topics=1, rate_in=1e6), BalanceSettings(), 1),
        (_LARGE["topics"], BalanceSettings(split=False), 1),
        (_LARGE["topics"], BalanceSettings(), 128),
    ],
    ids=["one topic", "switched off", "many bundles"],
)
def test_it_is_not_split(load: BundleLoad, settings: BalanceSettings, count: int) -> None:
    splitting = Splitting()
    splitting.settings = settings
    assert [splitting.look({_WHOLE: load}, {_NAMESPACE: count}) for _ in range(5)] == [[]] * 5


def test_a_namespace_does_not_get_more_bundles_than_the_limit_in_one_round() -> None:
    halves = [Bundle(_NAMESPACE, 0, 1 << 31), Bundle(_NAMESPACE, 1 << 31, LAST)]
    splitting = Splitting()
    splitting.settings = BalanceSettings(split_hits=1, bundles_max=3)
    loads = {halves[0]: _LARGE["topics"], halves[1]: _LARGE["bytes"]}
    assert splitting.look(loads, {_NAMESPACE: 2}) == [halves[1]]


def test_where_a_bundle_is_cut() -> None:
    topics = sorted((TopicName.parse(f"topic-{number}") for number in range(9)), key=hash_of)
    costs = dict.fromkeys(topics, 1.0)
    assert cut(_WHOLE, SplitAlgorithm.RANGE, costs) == LAST // 2
    assert cut(_WHOLE, SplitAlgorithm.POSITIONS, costs) == LAST // 2
    at = cut(_WHOLE, SplitAlgorithm.TOPIC_COUNT, costs)
    assert at is not None
    assert sum(hash_of(topic) < at for topic in topics) == 4
    costs[topics[0]] = 8.0
    at = cut(_WHOLE, SplitAlgorithm.FLOW, costs)
    assert at is not None
    assert [hash_of(topic) < at for topic in topics] == [True] + [False] * 8
    assert cut(_WHOLE, SplitAlgorithm.FLOW, {topics[0]: 8.0}) is None
    assert cut(Bundle(_NAMESPACE, 5, 6), SplitAlgorithm.RANGE, {}) is None


@pytest.mark.parametrize(
    ("upper", "room", "parts"),
    [
        (0.5, 0.52, ("own", "other")),
        (0.95, 0.45, ("other", "own")),
        (0.05, 0.45, ("own", "other")),
        (0.5, 0.45, ("own", "own")),
    ],
    ids=["halves", "a light lower part", "a light upper part", "two parts that are too large"],
)
def test_another_broker_gets_the_part_that_it_has_room_for(
    upper: float, room: float, parts: tuple[str, str]
) -> None:
    """A hot topic that went along would make its new broker the busier one."""
    assert targets("own", "other", upper=upper, fits=lambda part: part <= room) == SplitTargets(*parts)
    assert targets("own", "", upper=upper, fits=lambda part: part <= room) == ("own", "own")


def test_the_load_of_an_upper_part() -> None:
    light, hot = sorted((TopicName.parse(f"t{n}") for n in range(2)), key=hash_of)
    assert upper_part({light: 5.0, hot: 95.0}, hash_of(hot)) == 0.95
    assert upper_part({light: 0.0, hot: 0.0}, hash_of(hot)) == 0.0
