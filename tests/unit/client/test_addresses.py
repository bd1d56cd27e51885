"""A service URL of several hosts: the next one is asked when one does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.adminclient.errors import AdminUnreachableError
from magnetar.base.names import TopicName
from magnetar.client import client as module
from magnetar.client.client import Client
from magnetar.client.errors import RequestTimeoutError, UnreachableError
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import BadUrlError, ServiceAddresses, ServiceUrl
from magnetar.wire import pulsar_pb2 as pb

TOPIC = TopicName.parse("t")
OPTIONS = ClientOptions(retry_timeout_s=0.2)


def test_each_host_is_an_address() -> None:
    urls = ServiceUrl.parse_all("pulsar+ssl://a:1,b,[::1]:2")
    assert [*map(str, urls)] == ["pulsar+ssl://a:1", "pulsar+ssl://b:6651", "pulsar+ssl://[::1]:2"]
    addresses = ServiceAddresses("http://a,b")
    seen = []
    for _ in range(3):
        seen.append(addresses.now.host)
        addresses.go_on()
    assert seen == ["a", "b", "a"]


@pytest.mark.parametrize("text", ["pulsar://a,", "pulsar://,b", "pulsar://a,b:x", "pulsar://a,b:99999999"])
def test_none_of_them_may_be_wrong(text: str) -> None:
    with pytest.raises(BadUrlError, match="not a service URL"):
        ServiceUrl.parse_all(text)


class Network:
    """Brokers by their hosts; one that is not there refuses, one that hangs does not answer."""

    def __init__(self, *there: str, hanging: str = "") -> None:
        self.there, self.hanging = set(there), hanging
        self.asked: list[str] = []

    def __call__(self, url: ServiceUrl, options: ClientOptions, **_: object) -> Any:
        if url.host not in self.there:
            raise UnreachableError(str(url), "refused")
        return Broker(self, url)


class Broker:
    """A connection to one of them."""

    def __init__(self, network: Network, url: ServiceUrl) -> None:
        self.network, self.url = network, url
        self.is_open = True
        self.session = self

    def next_request_id(self) -> int:
        return 1

    def call(self, command: pb.BaseCommand, request_id: int, what: str) -> pb.BaseCommand:
        host = self.url.host
        self.network.asked.append(host)
        if host == self.network.hanging:
            raise RequestTimeoutError(str(self.url), what, 30)
        if host not in self.network.there:
            raise UnreachableError(str(self.url), "connection lost")
        return pb.BaseCommand(partitionMetadataResponse={"partitions": 3})

    def close(self) -> None:
        self.is_open = False


def test_the_first_host_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network("a", "b")
    monkeypatch.setattr(module, "Connection", network)
    client = Client("pulsar://a,b", OPTIONS)
    assert client.partitions(TOPIC) == 3
    network.there.remove("a")
    assert client.partitions(TOPIC) == 3
    assert network.asked == ["a", "a", "b"]
    # It stays where it got an answer, and comes back when that one is gone.
    assert client.partitions(TOPIC) == 3
    network.there = {"a"}
    assert client.partitions(TOPIC) == 3
    assert network.asked[3:] == ["b", "b", "a"]


def test_one_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network("a", "b", hanging="a")
    monkeypatch.setattr(module, "Connection", network)
    client = Client("pulsar://a,b", OPTIONS)
    assert client.partitions(TOPIC) == 3
    assert client.partitions(TOPIC) == 3
    assert network.asked == ["a", "b", "b"]
    assert client.admin.url == "http://b:8080"


def test_none_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Connection", Network())
    with pytest.raises(UnreachableError, match="refused"):
        Client("pulsar://a,b", OPTIONS).partitions(TOPIC)


def test_look_ups_over_http_and_a_list_of_admin_addresses_go_on_too() -> None:
    client = Client("http://a,b")

    def refused(topic: object, *, tls: bool) -> str:
        raise AdminUnreachableError(client.admin.url, "refused", "")

    client.admin.lookup = refused  # type: ignore[method-assign]  # nothing listens in a unit test
    with pytest.raises(AdminUnreachableError):
        client.connect_to(TOPIC)
    assert client.admin.url == "http://b:8080"
    two = Client("pulsar://a,b", admin_url="http://x:1,y:2")
    assert two.admin.url == "http://x:1"
    two._go_on()
    assert two.admin.url == "http://y:2"
