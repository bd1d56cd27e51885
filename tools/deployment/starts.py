"""The checks that a process makes at its start, without starting it, for a process that a file starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import click

from deployment.processes import ROOT, Deployed, Probe
from magnetar.admin.access.access import AccessScope, need
from magnetar.admin.routes import all_routes
from magnetar.cli.main import magnetar
from magnetar.observability.metrics import Registry
from magnetar.server import membership
from magnetar.server.security.exposure import check_exposure
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.loading import ENVIRONMENT_PREFIX, load
from magnetar.server.settings.proxy_loading import load_proxy
from magnetar.server.settings.proxy_settings import ProxySettings
from magnetar.server.settings.setting_values import KEYS

_OTHERS: Final = {"SSL_CERT_FILE", "POD_NAME", "POD_NAMESPACE", "METADATA", "ADVERTISED_ADDRESS", "OPTIONS"}
"""Variables that the files themselves use, or that a library reads."""
_PAGES: Final = {
    "bookie": "src/magnetar/server/bookies/bookie_pages.py",
    "autorecovery": "src/magnetar/server/bookies/autorecovery_pages.py",
    "proxy": "src/magnetar/proxy/http_app.py",
}
"""Where the pages of the small HTTP ports are declared."""


class WrongError(Exception):
    """What is wrong with a process of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A port on which a process listens."""

    port: int
    host: str
    tls: bool = False
    pages: frozenset[str] = frozenset()
    """Paths that are answered without credentials."""


def doors_of(process: Deployed) -> list[Door]:
    """The ports that it would open, as its start would check its options and settings.

    Raises WrongError, StartupError, click.UsageError.
    """
    names, given = parsed(process.arguments)
    role = names[0]
    allowed = {f"{ENVIRONMENT_PREFIX}{key.upper()}" for key in KEYS}
    if role == "proxy":
        allowed |= {f"{ENVIRONMENT_PREFIX}{each.name.upper()}" for each in fields(ProxySettings)}
    if role not in ("standalone", "broker", "proxy"):
        allowed = set()
    if unknown := process.variables.keys() - allowed - _OTHERS:
        raise WrongError(f"{sorted(unknown)} do not belong to the settings of magnetar {role}")
    if role == "cluster":
        return []
    if role in ("bookie", "autorecovery"):
        return _of_member(role, given)
    return _of_server(process, role, given)


def parsed(arguments: tuple[str, ...]) -> tuple[list[str], Mapping[str, object]]:
    """The words of the command, and its options. Raises click.UsageError."""
    command: click.Command = magnetar
    context = click.Context(magnetar)
    names: list[str] = []
    rest = list(arguments)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise WrongError(f"there is no command {' '.join([*names, name])}")
        names.append(name)
        command = found
    return names, command.make_context(" ".join(names), rest).params


def _of_member(role: str, given: Mapping[str, object]) -> list[Door]:
    doors = []
    if role == "bookie":
        doors.append(Door(port=_number(given["port"]), host=str(given["host"])))
    if given["http_port"] is not None:
        host = str(given["http_host"])
        doors.append(Door(port=_number(given["http_port"]), host=host, pages=_pages(role)))
    return doors


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _pages(role: str) -> frozenset[str]:
    text = (ROOT / _PAGES[role]).read_text(encoding="utf-8")
    if role == "proxy":
        return frozenset(re.findall(r'path == "([^"]+)"', text)) - {"/metrics"}
    return frozenset(re.findall(r'\("GET", "([^"]+)"\)', text))


def _of_server(process: Deployed, role: str, given: Mapping[str, object]) -> list[Door]:
    file, overrides = process.settings_file, {**given}
    config_option = overrides.pop("config", None)
    if (config_option is None) != (file is None):
        raise WrongError("an example of its settings is missing")
    pages = frozenset(
        path
        for method, path, _ in all_routes(Registry())
        if method == "GET" and need(method, path).scope is AccessScope.NOTHING
    )
    if role == "proxy":
        loaded, settings = load_proxy(overrides, file=file, environment=process.variables)
        config, pages = loaded.config, _pages(role)
        if (settings.broker_token or settings.broker_tls_certificate) and not config.authentication:
            raise WrongError("the proxy would lend its credentials to every client")
    else:
        config = load(overrides, file=file, environment=process.variables).config
    if role == "broker":
        membership.check(config)
    check_exposure(config)
    return _served(config, pages if role != "proxy" else _pages(role), https=role != "proxy")


def _served(config: StandaloneConfig, pages: frozenset[str], *, https: bool) -> list[Door]:
    plain = config.plain_host or config.host
    doors = [
        Door(port=config.broker_port, host=plain),
        Door(port=config.http_port, host=plain, pages=pages),
    ]
    if config.tls_certificate is not None:
        doors.append(Door(port=config.broker_tls_port, host=config.host, tls=True))
        if https:
            doors.append(Door(port=config.https_port, host=config.host, tls=True, pages=pages))
    return doors


def check_process(process: Deployed) -> None:
    """Raises WrongError, StartupError, click.UsageError if it would not start, or not answer its probes."""
    doors = doors_of(process)
    for probe in process.probes:
        check_probe(probe, doors)


def check_probe(probe: Probe, doors: list[Door]) -> None:
    """Raises WrongError for a probe that a healthy process would not answer."""
    for door in doors:
        if door.port != probe.port:
            continue
        if not probe.inside and door.host == "127.0.0.1":
            raise WrongError(
                f"port {probe.port} is open on 127.0.0.1 only, where the probe does not come from"
            )
        if probe.path and door.tls != probe.tls:
            raise WrongError(f"port {probe.port} and its probe do not agree about TLS")
        if probe.path and probe.path not in door.pages:
            raise WrongError(f"port {probe.port} does not answer {probe.path} without credentials")
        return
    raise WrongError(f"no port {probe.port} is open")
