"""The settings of a proxy, from TOML, variables and Pulsar's proxy.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.settings.proxy_loading import load_proxy

PULSAR = """
metadataStoreUrl=zk:one:2181,two:2181
servicePort=6660
webServicePort=8088
forwardAuthorizationCredentials=true
maxConcurrentLookupRequests=7
maxConcurrentInboundConnections=9
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:abc
"""


def test_toml_holds_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('brokers = "pulsar://a:6650"\nbroker_port = 6660\nforward_credentials = true\n')
    loaded, settings = load_proxy({"brokers": None, "http_port": 1}, file=file, environment={})
    assert (loaded.config.broker_port, loaded.config.http_port) == (6660, 1)
    assert (settings.brokers, settings.forward_credentials) == ("pulsar://a:6650", True)


def test_an_unknown_key_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('broker = "pulsar://a:6650"\n')
    with pytest.raises(StartupError, match="unknown key 'broker'"):
        load_proxy({}, file=file, environment={})


def test_the_command_line_comes_before_variables() -> None:
    environment = {"MAGNETAR_BROKERS": "pulsar://a:1", "MAGNETAR_LOOKUPS_MAX": "5"}
    _, settings = load_proxy({"brokers": "pulsar://b:2"}, environment=environment)
    assert (settings.brokers, settings.lookups_max) == ("pulsar://b:2", 5)


def test_pulsars_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "proxy.conf"
    file.write_text(PULSAR)
    loaded, settings = load_proxy({}, file=file, environment={"PULSAR_PREFIX_servicePort": "6661"})
    config = loaded.config
    assert (config.broker_port, config.http_port, config.connections_max) == (6661, 8088, 9)
    assert config.metadata_url == "zk://one:2181,two:2181"
    assert (settings.forward_credentials, settings.lookups_max) == (True, 7)
    assert settings.broker_token == "abc"


@pytest.mark.parametrize(
    "variables",
    [
        {"MAGNETAR_LOOKUPS_MAX": "many"},
        {"MAGNETAR_LOOKUPS_MAX": "0"},
        {"MAGNETAR_BROKER_TLS": "perhaps"},
        {"MAGNETAR_BROKER_TLS_KEY": "/key"},
    ],
)
def test_what_cannot_be_meant_is_an_error(variables: dict[str, str]) -> None:
    with pytest.raises(StartupError):
        load_proxy({}, environment=variables)
