"""Records of owners, brokers and moves; placement; names of bundles."""

from __future__ import annotations

import json

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import BundleLoad
from magnetar.broker.ownership.placement import SentBundles, least_loaded
from magnetar.broker.ownership.records import (
    BrokerReport,
    BrokerUrls,
    Load,
    decode_move,
    encode_move,
    owner_path,
)
from magnetar.broker.policies.bundles import LAST, equal_parts, ranges

NAMESPACE = NamespaceName("public", "default")
BUNDLE = Bundle(NAMESPACE, 0x40000000, 0x80000000)
URLS = BrokerUrls(
    Addresses("pulsar://a:6650", "", "http://a:8080", ""),
    {"outside": Addresses("pulsar://x:1", "pulsar+ssl://x:2", "", "")},
)


def test_the_record_of_an_owner_is_pulsars() -> None:
    document = json.loads(URLS.encode())
    assert document == {
        "nativeUrl": "pulsar://a:6650",
        "nativeUrlTls": None,
        "httpUrl": "http://a:8080",
        "httpUrlTls": None,
        "disabled": False,
        "advertisedListeners": {
            "outside": {
                "brokerServiceUrl": "pulsar://x:1",
                "brokerServiceUrlTls": "pulsar+ssl://x:2",
                "brokerHttpUrl": None,
                "brokerHttpsUrl": None,
            }
        },
    }
    assert BrokerUrls.decode(URLS.encode()) == URLS
    assert URLS.broker_id == "a:8080"
    assert owner_path(BUNDLE) == "/namespace/public/default/0x40000000_0x80000000"


def test_a_report_tells_the_load_of_bundles_as_pulsar_does() -> None:
    each = BundleLoad(10.5, 20.0, 1000.0, 2000.0, topics=3, producers=2, consumers=1)
    load = Load(
        bundles=4,
        cpu_percent=12.5,
        waited_percent=30.5,
        memory_mib=80.0,
        memory_limit_mib=900.0,
        of_bundles={BUNDLE: each},
    )
    assert load.wanted_percent == 43.0
    report = BrokerReport(URLS, load, reported_ms=77)
    document = json.loads(report.encode())
    assert document["lastStats"][str(BUNDLE)]["msgThroughputOut"] == 2000.0
    assert document["bundles"] == [str(BUNDLE)]
    assert BrokerReport.decode(report.encode()) == report
    document["lastStats"]["what a later version tells"] = {}
    assert BrokerReport.decode(json.dumps(document).encode()) == report
    document["lastStats"][str(BUNDLE)] = 7
    with pytest.raises(ValueError, match="lastStats"):
        BrokerReport.decode(json.dumps(document).encode())


def test_what_was_not_measured_is_no_load() -> None:
    """Pulsar's brokers tell -1 before they have measured; a load below 0 would draw every bundle."""
    document = json.loads(BrokerReport(URLS, Load(of_bundles={BUNDLE: BundleLoad(topics=1)})).encode())
    document["cpu"]["usage"] = document["msgRateIn"] = -1.0
    document["lastStats"][str(BUNDLE)]["msgThroughputIn"] = -1e17
    load = BrokerReport.decode(json.dumps(document).encode()).load
    assert (load.cpu_percent, load.rate_in, load.of_bundles[BUNDLE].cost) == (0.0, 0.0, 0.0)


def test_listeners() -> None:
    assert URLS.of_listener("") is URLS.addresses
    with pytest.raises(ServiceNotReadyError, match="do not have inside listener"):
        URLS.of_listener("inside")
    assert URLS.of_listener("outside") == Addresses("pulsar://x:1", "pulsar+ssl://x:2", "http://a:8080", "")


def test_the_record_of_a_broker() -> None:
    load = Load(3, 4, 5, 6, 1.5, 2.5, 10.0, 20.0, 40.0)
    report = BrokerReport(URLS, load, draining=True, started_ms=7, version="0.1")
    assert BrokerReport.decode(report.encode()) == report
    document = json.loads(report.encode())
    assert document["webServiceUrl"] == "http://a:8080"
    assert document["loadReportType"] == "LocalBrokerData"


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"7"])
def test_damaged_records(data: bytes) -> None:
    for decode in (BrokerUrls.decode, BrokerReport.decode, decode_move):
        with pytest.raises(ValueError, match=r"."):
            decode(data)


DAMAGED = {
    "listeners in a list": {"advertisedListeners": [1]},
    "a listener that is a text": {"advertisedListeners": {"outside": "pulsar://x:1"}},
    "a number as an address": {"httpUrl": 7, "webServiceUrl": 7},
    "an address of a listener in a list": {"advertisedListeners": {"outside": {"brokerHttpUrl": []}}},
    "an open bracket": {"httpUrl": "http://[a", "webServiceUrl": "http://[a"},
    "a port that is none": {"httpUrl": "http://a:99999", "webServiceUrl": "http://a:99999"},
    "no admin address": {"httpUrl": None, "webServiceUrl": ""},
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_records_with_one_damaged_field(change: dict[str, object]) -> None:
    report = BrokerReport(URLS)
    for record, decode in ((URLS, BrokerUrls.decode), (report, BrokerReport.decode)):
        with pytest.raises(ValueError, match=r"."):
            decode(json.dumps({**json.loads(record.encode()), **change}).encode())


@pytest.mark.parametrize("value", ["1e999", "1" + 400 * "0", '"7"', "[1]", "NaN"])
@pytest.mark.parametrize("name", ["numBundles", "msgRateIn", "startTimestamp"])
def test_figures_that_are_none(name: str, value: str) -> None:
    text = BrokerReport(URLS).encode().decode()
    with pytest.raises(ValueError, match=name):
        BrokerReport.decode(f'{text[:-1]},"{name}":{value}}}'.encode())


def test_a_report_without_an_address_for_clients() -> None:
    report = BrokerReport(BrokerUrls(Addresses(http="http://a:8080")))
    with pytest.raises(ValueError, match="no client reaches it"):
        BrokerReport.decode(report.encode())


def test_a_record_that_is_nested_deeply() -> None:
    for decode in (BrokerUrls.decode, BrokerReport.decode, decode_move):
        with pytest.raises(ValueError, match="deeply"):
            decode(b"[" * 100_000)


def test_moves() -> None:
    assert decode_move(encode_move("b:8080")) == "b:8080"


def test_bundles_by_name() -> None:
    assert Bundle.parse(str(BUNDLE)) == BUNDLE
    for text in ("public/default", "public/default/0x0", "x/0x0_0x1"):
        with pytest.raises(Exception, match=r"."):
            Bundle.parse(text)


def test_every_topic_is_in_one_bundle() -> None:
    document = {"bundles": equal_parts(4)}
    bundles = [Bundle(NAMESPACE, *bounds) for bounds in ranges(document)]
    assert bundles[-1].upper == LAST
    for number in range(100):
        topic = TopicName.parse(f"topic-{number}")
        assert sum(bundle.has(topic) for bundle in bundles) == 1
    assert not bundles[0].overlaps(bundles[1])
    assert bundles[0].overlaps(Bundle(NAMESPACE, 0, LAST))
    assert not bundles[0].overlaps(Bundle(NamespaceName("public", "other"), 0, LAST))


def _report(name: str, bundles: int, *, cpu: float = 0, draining: bool = False) -> BrokerReport:
    urls = BrokerUrls(Addresses(http=f"http://{name}"))
    return BrokerReport(urls, Load(bundles=bundles, cpu_percent=cpu), draining=draining)


def test_the_broker_with_the_fewest_bundles_gets_the_next() -> None:
    brokers = [_report("a:1", 3), _report("b:1", 1), _report("c:1", 0, draining=True)]
    none = SentBundles()
    assert least_loaded(BUNDLE, brokers, none) == "b:1"
    assert least_loaded(BUNDLE, brokers, none, excluded="b:1") == "a:1"
    assert least_loaded(BUNDLE, [], none) == ""
    assert least_loaded(BUNDLE, [_report("a:1", 0, cpu=90), _report("b:1", 9)], none) == "b:1"
    assert least_loaded(BUNDLE, [_report("a:1", 0, cpu=90)], none) == "a:1"


def test_what_a_broker_was_sent_counts_until_its_next_report() -> None:
    brokers = [_report("a:1", 3), _report("b:1", 1)]
    sent = SentBundles()
    for _ in range(3):
        sent.add(brokers[1])
    assert least_loaded(BUNDLE, brokers, sent) == "a:1"
    # The same report once more, read anew, says nothing of them.
    assert sent.since(_report("b:1", 1)) == 3
    assert sent.since(brokers[0]) == 0
    # It has taken two of them, or has lost others since.
    assert sent.since(_report("b:1", 3)) == 0
    sent.add(_report("b:1", 3))
    assert sent.since(_report("b:1", 3)) == 1


def test_equal_brokers_share_bundles() -> None:
    brokers = [_report("a:1", 0), _report("b:1", 0)]
    chosen = {least_loaded(Bundle(NAMESPACE, i, i + 1), brokers, SentBundles()) for i in range(50)}
    assert chosen == {"a:1", "b:1"}
