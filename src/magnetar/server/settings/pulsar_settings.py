"""Translates Pulsar's own settings, from its property files and variables, to ours.

The variable `PULSAR_PREFIX_<name>`, or one with a setting's plain name, overrides the file. An empty value
counts as not set. The notes name settings without a counterpart; a setting that requires an unsupported
protection ends the start.
Source: Pulsar's ServiceConfiguration (names, forms of values), its apply-config-from-env (variables).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from magnetar.auth.secrets import Inline, SecretSource, decoded, secret_source
from magnetar.base.errors import StartupError
from magnetar.server.settings import pulsar_names, pulsar_offload
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.properties import parse
from magnetar.server.settings.setting_values import read

PREFIX: Final = "PULSAR_PREFIX_"
_JAVA_OPTIONS: Final = ("PULSAR_EXTRA_OPTS", "PULSAR_MEM", "OPTS")
_BASIC_PROPERTY: Final = "-Dpulsar.auth.basic.conf="
"""Java option that names the password file besides `basicAuthConf`."""
_BLOCKED_SHARE: Final = "maxUnackedMessagesPerSubscriptionOnBrokerBlocked"
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # compared with, not bound


@dataclass(frozen=True, slots=True)
class Translation:
    """The result of a translation."""

    settings: dict[str, object]
    """Our settings that Pulsar's determine."""
    notes: tuple[str, ...]
    details: tuple[str, ...]

    def kept_from_strangers(self, config: StandaloneConfig) -> tuple[StandaloneConfig, tuple[str, ...]]:
        """The settings, with a loopback host if otherwise every client on the network could do everything.

        Pulsar's files listen on every interface by default, so such a file does not show that this is
        intended.
        """
        near = _WILDCARDS.get(config.host)
        if near is None or config.authentication or config.insecure:
            return config, ()
        note = (
            f"bindAddress={config.host} without authentication: listening on {near} only;"
            " --insecure lets other machines in"
        )
        return replace(config, host=near), (note,)


def translate(file: Path | None, environment: Mapping[str, str]) -> Translation:
    """Translates a file and variables. Raises StartupError for an unreadable file or value, and for an
    unsupported protection."""
    given = {} if file is None else _properties(file)
    given |= {name: environment[name] for name in {*given, *pulsar_names.KNOWN} if name in environment}
    prefixed = (name for name in environment if name.startswith(PREFIX))
    given |= {name.removeprefix(PREFIX): environment[name] for name in prefixed}
    if not given:
        return Translation({}, (), ())
    source = "Pulsar's variables" if file is None else f"configuration {file}"
    said = {name: value.strip() for name, value in given.items() if value.strip()}
    settings = _plain(said, source)
    if file is not None:
        # With Pulsar's file Pulsar's rule applies, even if the file does not name it.
        settings.setdefault("inactive_topic_deletion", True)
    try:
        url = pulsar_offload.offload_url(said)
    except pulsar_offload.UnknownStoreError as error:
        raise StartupError(f"{source}: {error}") from error
    settings |= {} if url is None else {"offload_url": url}
    settings |= _tls(given, said, settings, source)
    settings |= _authentication(said, source, tls="tls_certificate" in settings)
    if "basic" in str(settings.get("authentication", "")) and "basic_users" not in settings:
        settings |= _java_passwords(environment)
    unknown = sorted(said.keys() - pulsar_names.KNOWN)
    note = f"{source}: {len(said) - len(unknown)} settings taken"
    details: tuple[str, ...] = ()
    if unknown:
        note += f", {len(unknown)} have no counterpart here (--log-level debug names them)"
        details = (f"{source}, without counterpart: {', '.join(unknown)}",)
    return Translation(settings, (note, *_fixed(said)), details)


def _properties(file: Path) -> dict[str, str]:
    try:
        return parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(
            f"configuration {file} cannot be read: {error.strerror}; check the path given to --config"
        ) from error
    except ValueError as error:
        raise StartupError(f"configuration {file} is not a property file: {error}; correct it") from error


def _plain(said: Mapping[str, str], source: str) -> dict[str, object]:
    """Our values of settings that differ only in name or unit."""
    settings: dict[str, object] = {}
    for name, key in pulsar_names.SAME.items():
        if name in said:
            settings[key] = read(key, said[name], f"{source}, key {name}")
    for name, (key, unit) in pulsar_names.SCALED.items():
        # Pulsar writes -1, sometimes 0, where it means no limit, or its own choice.
        if name in said and (number := _number(said[name], f"{source}, key {name}")) > 0:
            settings[key] = number * unit
    if "inactive_topic_interval_seconds" in settings:
        # Pulsar takes one for the other where only this one is given.
        settings.setdefault("inactive_topic_seconds", settings["inactive_topic_interval_seconds"])
    if said.get("exposeTopicLevelMetricsInPrometheus", "").lower() == "false":
        settings["metrics_topics_max"] = 0
    if _is_true(said, "httpRequestsLimitEnabled"):
        rate = _rate(said.get("httpRequestsMaxPerSecond", "100"), f"{source}, key httpRequestsMaxPerSecond")
        settings["http_calls_per_second"] = rate
    if (share := said.get(_BLOCKED_SHARE)) is not None:
        percent = _percent(share, f"{source}, key {_BLOCKED_SHARE}")
        # As in Pulsar: without a share the limit of the broker has no effect.
        settings.update({"unacked_blocked_percent": percent} if percent else {"unacked_max_per_broker": 0})
    if said.get("allowAutoTopicCreationType") == "partitioned":
        partitions = said.get("defaultNumPartitions", "1")
        settings["auto_topic_partitions"] = _number(partitions, f"{source}, key defaultNumPartitions")
    return settings


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise StartupError(f"{where}: {text!r} is not a whole number; correct it") from None


def _rate(text: str, where: str) -> int:
    """A number per second, which may have a fraction in Pulsar; at least 1. Raises StartupError."""
    try:
        return max(1, round(float(text)))
    except (ValueError, OverflowError):
        raise StartupError(f"{where}: {text!r} is not a number; correct it") from None


def _percent(text: str, where: str) -> int:
    """A share between 0 and 1 as percent, 1 to 100; 0 when it is not above 0. Raises StartupError."""
    try:
        share = float(text)
        return max(1, min(100, round(share * 100))) if share > 0 else 0
    except (ValueError, OverflowError):
        raise StartupError(f"{where}: {text!r} is not a number; correct it") from None


def _fixed(said: Mapping[str, str]) -> list[str]:
    differing = [
        f"{name} is always {value}"
        for name, value in pulsar_names.FIXED.items()
        if said.get(name, value).lower() != value
    ]
    return ["here " + ", ".join(differing)] if differing else []


def _is_true(said: Mapping[str, str], name: str) -> bool:
    return said.get(name, "").lower() == "true"


def _tls(
    given: Mapping[str, str], said: Mapping[str, str], plain: Mapping[str, object], source: str
) -> dict[str, object]:
    """TLS is served when one of its ports is given, or by the old switch."""
    if not (said.keys() & {"brokerServicePortTls", "webServicePortTls"} or _is_true(said, "tlsEnabled")):
        return {}
    for name in ("brokerServicePort", "webServicePort"):
        if name in given and name not in said:
            raise StartupError(f"{source}: TLS alone is not offered; give {name} a port")
    if _is_true(said, "tlsEnabledWithKeyStore"):
        raise StartupError(f"{source}: key stores are not read; give tlsCertificateFilePath, tlsKeyFilePath")
    settings = {}
    for name, key in pulsar_names.TLS.items():
        if name in said:
            settings[key] = read(key, said[name], f"{source}, key {name}")
    if _is_true(said, "tlsAllowInsecureConnection") and not settings.get("tls_require_client_certificate"):
        # Certificates of clients are not to be checked, so none may be asked for.
        settings.pop("tls_ca", None)
    return settings


def _authentication(said: Mapping[str, str], source: str, *, tls: bool) -> dict[str, object]:
    if not _is_true(said, "authenticationEnabled"):
        if _is_true(said, "authorizationEnabled"):
            raise StartupError(f"{source}: authorizationEnabled needs authenticationEnabled; set both")
        return {}
    provider = said.get("authorizationProvider", pulsar_names.AUTHORIZATION_PROVIDER)
    several = provider == pulsar_names.MULTI_ROLES_PROVIDER
    if provider != pulsar_names.AUTHORIZATION_PROVIDER and not several:
        raise StartupError(f"{source}: authorizationProvider {provider} is not offered")
    methods = []
    for name in filter(None, (part.strip() for part in said.get("authenticationProviders", "").split(","))):
        method = pulsar_names.AUTHENTICATION_PROVIDERS.get(name.rpartition(".")[2])
        if method is None:
            raise StartupError(f"{source}: authentication provider {name} is not offered; leave it out")
        # Without TLS no client can show a certificate.
        if method != "tls" or tls:
            methods.append(method)
    if not methods:
        raise StartupError(f"{source}: authenticationEnabled needs authenticationProviders; name them")
    settings: dict[str, object] = {
        "authentication": ",".join(methods),
        "authorization": _is_true(said, "authorizationEnabled"),
        "token_multiple_roles": several,
    }
    claim = said.get("tokenAudienceClaim", "aud")
    if "token" in methods and claim != "aud":
        raise StartupError(f"{source}: tokenAudienceClaim {claim} is not supported; only aud is checked")
    for name, key in pulsar_names.SECRETS.items():
        if name in said:
            settings[key] = _secret(said[name], f"{source}, key {name}")
    return settings


def _secret(text: str, where: str) -> SecretSource:
    """A secret in Pulsar's forms: a URL, else the path of an existing file, else base 64. Raises
    StartupError."""
    tries: tuple[Callable[[], SecretSource], ...] = (lambda: secret_source(text),)
    if not text.startswith(("data:", "file:")) and not Path(text).exists():
        tries = (lambda: Inline(decoded(text)), *tries)
    for attempt in tries:
        try:
            return attempt()
        except ValueError:  # not this form; when none fits, the loop's end raises
            continue
    raise StartupError(f"{where} is not a file, a file: or data:;base64, URL, or base 64; correct it")


def _java_passwords(environment: Mapping[str, str]) -> dict[str, object]:
    for variable in _JAVA_OPTIONS:
        for option in shlex.split(environment.get(variable, "")):
            if option.startswith(_BASIC_PROPERTY):
                return {"basic_users": Path(option.removeprefix(_BASIC_PROPERTY))}
    return {}
