"""The brokers that a proxy connects to, and what clients call them."""

from __future__ import annotations

import pytest

from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.proxy.known_brokers import BrokerAddress, KnownBrokers

ONE = BrokerUrls(
    Addresses(
        plain="pulsar://one.example:6650", tls="pulsar+ssl://one.example:6651", http="http://one.example:8080"
    ),
    {"outside": Addresses(plain="pulsar://1.example.org:6666")},
)
SIX = BrokerUrls(Addresses(plain="pulsar://[2001:db8::1]:6650", http="http://[2001:db8::1]:8080"))
LOCAL = BrokerUrls(Addresses(plain="pulsar://127.0.0.1:6650", http="http://127.0.0.1:8080"))


def targets(*brokers: BrokerUrls, tls: bool = False) -> KnownBrokers:
    found = KnownBrokers(tls=tls)
    found.replace(brokers)
    return found


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("one.example:6650", BrokerAddress("one.example", 6650)),
        ("pulsar://one.example:6650", BrokerAddress("one.example", 6650)),
        ("ONE.example:06650", BrokerAddress("one.example", 6650)),
        ("1.example.org:6666", BrokerAddress("1.example.org", 6666)),
        ("[2001:db8::1]:6650", BrokerAddress("2001:db8::1", 6650)),
        ("pulsar://[2001:DB8::1]:6650/", BrokerAddress("2001:db8::1", 6650)),
    ],
)
def test_a_broker_is_found_by_what_it_registered(named: str, found: BrokerAddress) -> None:
    assert targets(ONE, SIX).find(named) == found


@pytest.mark.parametrize(
    "named",
    [
        "",
        "one.example",
        "one.example:6651",
        "one.example:8080",
        "one.example:22",
        "one.example:66650",
        "one.example.evil.org:6650",
        "evil.org:6650",
        "169.254.169.254:80",
        "localhost:6650",
        "127.1:6650",
        "2130706433:6650",
        "[::ffff:127.0.0.1]:6650",
        "[::1]:6650",
        "evil.org@127.0.0.1:6650",
        "pulsar://127.0.0.1:6650@evil.org:6650",
        "pulsar://evil.org:6650/127.0.0.1:6650",
        "pulsar://evil.org:6650#127.0.0.1:6650",
        "http://127.0.0.1:6650",
        "127.0.0.1:6650,evil.org:6650",
        "127.0.0.1:6650\nevil.org:6650",
        " 127.0.0.1:6650",
        "127.0.0.1:6650 ",
        "127.0.0.1:٦٦٥٠",
        "pulsar+ssl://",
        "x" * 100_000,
    ],
)
def test_nothing_else_is_a_broker(named: str) -> None:
    assert targets(ONE, SIX, LOCAL).find(named) is None


def test_with_tls_only_tls_ports_are_connected_to() -> None:
    found = targets(ONE, SIX, tls=True)
    assert found.find("one.example:6651") == BrokerAddress("one.example", 6651)
    assert found.find("one.example:6650") is None
    assert found.find("[2001:db8::1]:6650") is None
    assert len(found) == 1


@pytest.mark.parametrize(
    "url",
    [
        "pulsar://bad.example",
        "pulsar://:6650",
        "pulsar://bad.example:0",
        "pulsar://bad.example:99999",
        "pulsar://[::1:6650",
        "http://bad.example:8080",
        "bad.example:6650",
        "file:///etc/passwd",
    ],
)
def test_a_strange_address_hides_no_other_broker(url: str) -> None:
    found = targets(BrokerUrls(Addresses(plain=url)), LOCAL)
    assert found.find("127.0.0.1:6650") == BrokerAddress("127.0.0.1", 6650)
    assert len(found) == 1
    assert found.find("bad.example:8080") is None


def test_a_broker_that_has_gone_is_none_any_more() -> None:
    found = targets(ONE, LOCAL)
    found.replace([LOCAL])
    assert found.find("one.example:6650") is None
    assert found.find("127.0.0.1:6650") == BrokerAddress("127.0.0.1", 6650)


def test_brokers_are_asked_in_turn_but_those_that_failed() -> None:
    found = targets(ONE, LOCAL)
    first, second = found.pick(), found.pick()
    assert {first, second} == {BrokerAddress("one.example", 6650), BrokerAddress("127.0.0.1", 6650)}
    assert found.pick([BrokerAddress("127.0.0.1", 6650)]) == BrokerAddress("one.example", 6650)
    assert found.pick([BrokerAddress("one.example", 6650), BrokerAddress("127.0.0.1", 6650)]) is None
    assert targets().pick() is None
