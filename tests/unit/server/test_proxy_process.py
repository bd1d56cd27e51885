"""The brokers that the settings of a proxy list."""

from __future__ import annotations

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.proxy_process import listed
from magnetar.server.settings.proxy_settings import ProxySettings


@pytest.mark.parametrize(
    "brokers",
    ["pulsar://a:1,pulsar://b:2,pulsar://c:3", "pulsar://a:1,b:2,c:3", "pulsar://a:1, b:2,pulsar://c:3"],
)
def test_a_service_url_of_pulsars_lists_brokers_too(brokers: str) -> None:
    settings = ProxySettings(brokers=brokers, brokers_http="http://a:8080,b:8080")
    told = [each.addresses for each in listed(settings)]
    assert [each.plain for each in told if each.plain] == ["pulsar://a:1", "pulsar://b:2", "pulsar://c:3"]
    assert [each.http for each in told if each.http] == ["http://a:8080", "http://b:8080"]


@pytest.mark.parametrize("brokers", ["a:1", "a:1,pulsar://b:2", "pulsar://a:1,b", "pulsar+ssl://a:1"])
def test_what_is_no_address_is_refused(brokers: str) -> None:
    with pytest.raises(StartupError, match="is not pulsar://host:port"):
        list(listed(ProxySettings(brokers=brokers)))
