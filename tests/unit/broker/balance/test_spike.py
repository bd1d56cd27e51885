"""A spike on the only bundle of a namespace: reports in, decisions out, by a clock that is set by hand."""

from __future__ import annotations

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.balance.settings import SplitAlgorithm
from magnetar.broker.balance.shedding import NEW_MS, Shedding
from magnetar.broker.balance.splitting import cut
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import BundleLoad
from magnetar.broker.ownership.records import BrokerReport, Load
from magnetar.broker.policies.bundles import LAST, hash_of
from support.many_brokers import urls_of

_WHOLE = Bundle(NamespaceName("public", "spiked"), 0, LAST)
_TOPICS = {TopicName.parse(f"persistent://public/spiked/t{number}"): 625.0 for number in range(16)}
_SPIKE = BundleLoad(rate_in=10_000, bytes_in=1_360_000, topics=16, producers=16)
_IDS = ["a:8080", "b:8080", "c:8080"]


@pytest.mark.parametrize(
    ("used", "waited", "hot"),
    [(20.0, 0.0, None), (60.0, 0.0, (_WHOLE, "b:8080")), (20.0, 40.0, (_WHOLE, "b:8080"))],
    ids=["a calm broker", "a busy one", "one on a busy machine"],
)
def test_the_only_bundle_is_named_for_a_split_when_its_broker_is_busy(
    used: float, waited: float, hot: tuple[Bundle, str] | None
) -> None:
    """The processor decides, not the messages: 10,000 a second took 20 % of a core, which is calm, unless the
    broker waited for another 40 % that others had."""
    clock, shedding = ManualClock(), Shedding()
    busy = Load(
        bundles=1,
        rate_in=10_000,
        bytes_in=1_360_000,
        cpu_percent=used,
        waited_percent=waited,
        of_bundles={_WHOLE: _SPIKE},
    )
    for _ in range(NEW_MS // 5_000 + 4):
        clock.advance(5_000)
        now_ms = clock.monotonic_ms()
        loads = zip(_IDS, [busy, Load(cpu_percent=0.7), Load(cpu_percent=0.7)], strict=True)
        reports = {
            each: BrokerReport(urls_of(each), load, reported_ms=int(now_ms)).encode() for each, load in loads
        }
        shedding.told({each: BrokerReport.decode(told) for each, told in reports.items()}, now_ms)
        assert shedding.decide(lambda _: frozenset(_IDS), now_ms) == []
    found = shedding.too_big(_IDS[0], lambda _: frozenset(_IDS), clock.monotonic_ms())
    assert (found and tuple(found)[:2]) == hot


def test_a_spike_on_equal_topics_is_cut_into_halves() -> None:
    at = cut(_WHOLE, SplitAlgorithm.FLOW, _TOPICS)
    assert at is not None
    assert sum(hash_of(name) < at for name in _TOPICS) == 8
