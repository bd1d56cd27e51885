"""What clients are told to connect to."""

from __future__ import annotations

import pytest

from magnetar.broker.errors import ServiceNotReadyError, told
from magnetar.broker.listeners import Addresses, Listeners, parse_listeners

NAMED = "lan:pulsar://10.0.0.1:6650, lan:pulsar+ssl://10.0.0.1:6651,wan:pulsar+ssl://[2001:db8::1]:7651"


def test_listeners_are_read_by_name_and_scheme() -> None:
    assert parse_listeners(NAMED) == {
        "lan": Addresses("pulsar://10.0.0.1:6650", "pulsar+ssl://10.0.0.1:6651"),
        "wan": Addresses(tls="pulsar+ssl://[2001:db8::1]:7651"),
    }
    assert parse_listeners("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "lan",
        "lan:10.0.0.1:6650",
        ":pulsar://h:1",
        "a:tcp://h:1",
        "a:pulsar://h",
        "a:pulsar://h:x",
        "a:pulsar://:1",
    ],
)
def test_what_is_no_listener_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not name:scheme://host:port"):
        parse_listeners(text)


def test_a_name_has_one_address_for_each_scheme() -> None:
    with pytest.raises(ValueError, match="listener a has two addresses for pulsar"):
        parse_listeners("a:pulsar://h:1,a:pulsar://h:2")


def test_without_listeners_the_host_that_was_reached_is_told() -> None:
    assert Listeners().addresses("h", 1234) == Addresses("pulsar://h:1234")
    listeners = Listeners(plain_port=1, tls_port=2, http_port=3, https_port=4)
    assert listeners.addresses("h", 1234) == Addresses(
        "pulsar://h:1", "pulsar+ssl://h:2", "http://h:3", "https://h:4"
    )


def test_a_client_gets_the_listener_that_it_names_or_the_internal_one() -> None:
    listeners = Listeners(plain_port=1, http_port=3, named=parse_listeners(NAMED), internal="lan")
    assert listeners.addresses("h").plain == "pulsar://10.0.0.1:6650"
    assert listeners.addresses("h", listener="wan") == Addresses(
        tls="pulsar+ssl://[2001:db8::1]:7651", http="http://h:3"
    )


def test_an_unknown_listener_is_refused_with_those_that_are_known() -> None:
    listeners = Listeners(named=parse_listeners(NAMED), internal="lan")
    # By these words the C++ client tells a listener that there is not from a broker that is not ready.
    with pytest.raises(ServiceNotReadyError, match=r"^the broker do not have test listener$") as found:
        listeners.addresses("h", listener="test")
    assert told(found.value) == "the broker do not have test listener; known: lan, wan"
    with pytest.raises(ServiceNotReadyError) as found:
        Listeners().addresses("h", listener="moon")
    assert found.value.remedy == "known: none"
