"""Reads the settings of `magnetar proxy`: its own, and those that it has in common with a broker.

The sources and their order are those of `loading.py`. In TOML and in variables the proxy's own settings stand
beside the others. Pulsar's `proxy.conf` is taken with the names of Pulsar's ProxyConfiguration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, TypeVar

from magnetar.base.errors import StartupError
from magnetar.server.settings.loading import ENVIRONMENT_PREFIX, PROPERTY_SUFFIXES, Loaded, load
from magnetar.server.settings.properties import parse
from magnetar.server.settings.proxy_settings import ProxySettings

_T = TypeVar("_T")
_OWN: Final = frozenset(field.name for field in fields(ProxySettings))
_PREFIX: Final = "PULSAR_PREFIX_"
_RENAMED: Final = {
    "servicePort": "brokerServicePort",
    "servicePortTls": "brokerServicePortTls",
    "maxConcurrentInboundConnections": "brokerMaxConnections",
    "maxConcurrentInboundConnectionsPerIp": "brokerMaxConnectionsPerIp",
}
"""Settings that a broker has by another name in Pulsar."""
_TAKEN: Final = {
    "brokerServiceURL": "brokers",
    "brokerWebServiceURL": "brokers_http",
    "tlsEnabledWithBroker": "broker_tls",
    "brokerClientTrustCertsFilePath": "broker_tls_ca",
    "brokerClientCertificateFilePath": "broker_tls_certificate",
    "brokerClientKeyFilePath": "broker_tls_key",
    "tlsHostnameVerificationEnabled": "broker_tls_hostnames",
    "forwardAuthorizationCredentials": "forward_credentials",
    "maxConcurrentLookupRequests": "lookups_max",
}
_OVER_TLS: Final = {"brokerServiceURLTLS": "brokers", "brokerWebServiceURLTLS": "brokers_http"}
_PLUGIN: Final = "brokerClientAuthenticationPlugin"
_PARAMETERS: Final = "brokerClientAuthenticationParameters"
_WORDS: Final = {"true": True, "false": False}


def load_proxy(
    overrides: Mapping[str, object],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Loaded, ProxySettings]:
    """Like `loading.load`. Raises StartupError."""
    own: dict[str, object] = {}
    common = dict(environment)
    if file is not None and file.suffix in PROPERTY_SUFFIXES:
        said = _read(file, parse)
        said |= {
            name.removeprefix(_PREFIX): value
            for name, value in environment.items()
            if name.startswith(_PREFIX)
        }
        own |= _of_pulsar(said)
        common |= {f"{_PREFIX}{_RENAMED.get(name, name)}": value for name, value in said.items()}
        if url := (said.get("metadataStoreUrl", "") or said.get("zookeeperServers", "")).strip():
            # Pulsar writes zk:host:port, and host:port in its older name.
            common.setdefault("MAGNETAR_METADATA_URL", f"zk://{url.removeprefix('zk:').lstrip('/')}")
        file = None
    elif file is not None:
        document = _read(file, _toml)
        own |= {name: document[name] for name in _OWN & document.keys()}
    own |= {
        name: environment[variable]
        for name in _OWN
        if (variable := ENVIRONMENT_PREFIX + name.upper()) in environment
    }
    own |= {name: value for name, value in overrides.items() if name in _OWN and value is not None}
    others = {name: value for name, value in overrides.items() if name not in _OWN}
    loaded = load(others, file=file, environment=common, beside=_OWN)
    return loaded, _settings(own)


def _read(file: Path, form: Callable[[str], _T]) -> _T:
    try:
        return form(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(
            f"configuration {file} cannot be read: {error.strerror}; check the path given to --config"
        ) from error
    except ValueError as error:
        raise StartupError(f"configuration {file} cannot be understood: {error}; correct it") from error


def _toml(text: str) -> dict[str, object]:
    import tomllib

    return tomllib.loads(text)


def _of_pulsar(said: Mapping[str, str]) -> dict[str, object]:
    over_tls = said.get("tlsEnabledWithBroker", "").strip().lower() == "true"
    names = _TAKEN | (_OVER_TLS if over_tls else {})
    found: dict[str, object] = {
        key: value.strip() for name, key in names.items() if (value := said.get(name, "")).strip()
    }
    plugin = said.get(_PLUGIN, "").strip().rpartition(".")[2]
    parameters = said.get(_PARAMETERS, "").strip()
    if plugin == "AuthenticationToken":
        found["broker_token"] = parameters.removeprefix("token:")
    elif plugin == "AuthenticationTls":
        given = _pairs(parameters)
        found["broker_tls_certificate"] = given.get("tlsCertFile", "")
        found["broker_tls_key"] = given.get("tlsKeyFile", "")
    elif plugin:
        raise StartupError(
            f"{_PLUGIN}: {plugin} is not offered; use AuthenticationToken or AuthenticationTls"
        )
    return found


def _pairs(parameters: str) -> dict[str, str]:
    """Parameters as JSON, or as `key:value,...`."""
    if parameters.startswith("{"):
        try:
            return {str(key): str(value) for key, value in json.loads(parameters).items()}
        except ValueError as error:
            raise StartupError(f"{_PARAMETERS} is not JSON: {error}") from error
    parts = (pair.partition(":") for pair in parameters.split(",") if pair)
    return {key.strip(): value.strip() for key, _, value in parts}


def _settings(own: Mapping[str, object]) -> ProxySettings:
    read: dict[str, object] = {}
    for field in fields(ProxySettings):
        if field.name in own:
            read[field.name] = _value(field.name, field.type, own[field.name])
    settings = ProxySettings(**read)  # type: ignore[arg-type]  # `_value` has looked at the types
    if settings.lookups_max < 1 or settings.drain_seconds < 0:
        raise StartupError("lookups_max is at least 1, and drain_seconds at least 0; correct them")
    if (settings.broker_tls_certificate is None) != (settings.broker_tls_key is None):
        raise StartupError("broker_tls_certificate and broker_tls_key go together; give both or none")
    return settings


def _value(name: str, kind: object, given: object) -> object:
    """`kind`: the annotation as text. Raises StartupError."""
    try:
        if kind == "bool":
            return given if isinstance(given, bool) else _WORDS[str(given).lower()]
        if kind == "int":
            return int(str(given))
        if kind == "float":
            return float(str(given))
    except (KeyError, ValueError):
        raise StartupError(f"{name}: {given!r} is not a {kind}; correct it") from None
    if kind == "Path | None":
        return Path(str(given)) if str(given) else None
    return str(given)
