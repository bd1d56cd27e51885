"""What a process is given comes out as it went in; addresses of processes follow from their ports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from magnetar.broker.listeners import NOWHERE, Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.server.banner import Endpoints
from magnetar.server.processes.neighbours import addresses_of, shared_urls, siblings_of
from magnetar.server.processes.seat import Ports, Seat, decode_ready, encode_ready
from magnetar.server.settings.config import StandaloneConfig

OWN = {1: Ports(6750, 8180), 2: Ports(6850, 8280)}
SEAT = Seat(
    number=2,
    own=OWN,
    shared=Ports(6650, 8080),
    descriptors=Ports(5, 6),
    control=7,
    folder="/run/magnetar",
    config="broker.toml",
    overrides={"broker_port": 6650, "data_dir": Path("/srv/data"), "insecure": True},
)
CONFIG = StandaloneConfig(processes=2, host="10.0.0.7")
SECOND = BrokerUrls(addresses_of(CONFIG, OWN[2]))


def test_a_seat_comes_out_as_it_went_in() -> None:
    assert Seat.decode(SEAT.encode()) == SEAT
    assert "\n" not in SEAT.encode()
    assert SEAT.ports == Ports(6850, 8280)


def test_so_does_what_a_process_tells_when_it_serves() -> None:
    endpoints = Endpoints("pulsar://a:1", "http://a:2", "pulsar+ssl://a:3", "https://a:4")
    assert decode_ready(encode_ready(endpoints)) == endpoints


def test_a_process_finds_the_others_by_the_names_that_clients_use() -> None:
    siblings = siblings_of(CONFIG, SECOND, SEAT)
    first = Path("/run/magnetar/1.sock")
    assert siblings.find("10.0.0.7:6750") == first
    assert siblings.find("pulsar://10.0.0.7:6750") == first
    assert siblings.find("PULSAR://10.0.0.7:6750/") == first
    # Itself, the port of all, another machine, and nothing.
    for named in ("10.0.0.7:6850", "10.0.0.7:6650", "10.0.0.8:6750", "", "10.0.0.7", "x://"):
        assert siblings.find(named) is None
    assert siblings.has("10.0.0.7:8180")
    assert siblings.has("10.0.0.7:8280")
    assert not siblings.has("10.0.0.8:8180")
    assert siblings.ports == {6650, 6850}


def test_the_first_process_of_a_standalone_has_the_functions() -> None:
    first, second = replace(SEAT, number=1, storage=True), replace(SEAT, storage=True)
    assert first.has_functions
    assert siblings_of(CONFIG, BrokerUrls(addresses_of(CONFIG, OWN[1])), first).functions is None
    assert siblings_of(CONFIG, SECOND, second).functions == BrokerUrls(addresses_of(CONFIG, OWN[1]))
    # On a cluster no process has any, and they can be switched off.
    assert not replace(first, storage=False).has_functions
    assert siblings_of(CONFIG, SECOND, SEAT).functions is None
    assert siblings_of(replace(CONFIG, functions=False), SECOND, second).functions is None


def test_other_machines_hear_of_the_shared_port() -> None:
    shared = shared_urls(CONFIG, SECOND, SEAT)
    assert shared.addresses == SECOND.addresses
    assert shared.shared_of("") == Addresses("pulsar://10.0.0.7:6650", "", "http://10.0.0.7:8080", "")
    # The first of the listeners is for clients that name none.
    outside = Addresses("pulsar://outside:1")
    told = shared_urls(CONFIG, BrokerUrls(SECOND.addresses, {"outside": outside}), SEAT)
    assert told.shared_of("").plain == told.shared_of("outside").plain == "pulsar://outside:1"
    assert told.shared_of("").http == "http://10.0.0.7:8080"


def test_with_own_ports_nothing_is_shared() -> None:
    config = StandaloneConfig(processes=2, host="10.0.0.7", processes_one_port=False)
    assert shared_urls(config, SECOND, SEAT).shared == NOWHERE
    siblings = siblings_of(config, SECOND, SEAT)
    assert siblings.ports == frozenset()
    assert siblings.find("10.0.0.7:6750") is None
    assert siblings.has("10.0.0.7:8180")
