"""Reads settings from their sources. The first source with a value wins:

    command line          --port 0
    environment           MAGNETAR_BROKER_PORT=0        MAGNETAR_ and the field's name in capitals
    Pulsar's variables    PULSAR_PREFIX_brokerServicePort=0, brokerServicePort=0
    file                  broker_port = 0               of --config: TOML, or one of Pulsar's files
    default               the field's default

Unknown environment variables are ignored, since other programs may set MAGNETAR_ variables too; an unknown
key in a TOML file is an error. Pulsar's settings are taken if they have a counterpart; `Loaded.notes` names
the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import StartupError
from magnetar.server.settings.checks import check
from magnetar.server.settings.config import StandaloneConfig, default_data_dir
from magnetar.server.settings.setting_values import FORMER_NAMES, KEYS, read

if TYPE_CHECKING:
    from magnetar.server.settings.pulsar_settings import Translation

ENVIRONMENT_PREFIX: Final = "MAGNETAR_"
PROPERTY_SUFFIXES: Final = (".conf", ".properties")
"""Suffixes of files in the form of Pulsar's own; other files are TOML."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, with notes about their sources."""

    config: StandaloneConfig
    notes: tuple[str, ...] = ()
    """Lines for the operator."""
    details: tuple[str, ...] = ()
    """Lines for the log level debug."""
    warnings: tuple[str, ...] = ()
    """Lines about what a later release refuses."""


def load(
    overrides: Mapping[str, object],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    beside: Set[str] = frozenset(),
) -> Loaded:
    """Reads and checks the settings. `overrides` holds fields given on the command line, None for
    those that were not. `beside`: keys of a TOML file that another reader takes.

    Raises StartupError for an unreadable file, an unknown key, a value of a wrong type or range.
    """
    settings: dict[str, Any] = {}
    warnings: list[str] = []
    pulsar: Translation | None = None
    if file is not None and file.suffix not in PROPERTY_SUFFIXES:
        settings |= _from_toml(file, warnings, beside)
        file = None
    # Without a Pulsar file or variable the translation is not loaded.
    if file is not None or _names_pulsar(environment):
        from magnetar.server.settings import pulsar_settings

        pulsar = pulsar_settings.translate(file, environment)
        settings |= pulsar.settings
    settings |= _from_environment(environment, warnings)
    settings |= {name: value for name, value in overrides.items() if value is not None}
    config = StandaloneConfig(**settings)
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    if pulsar is not None:
        notes, details = pulsar.notes, pulsar.details
        if config.host == pulsar.settings.get("host") and overrides.get("host") is None:
            config, kept = pulsar.kept_from_strangers(config)
            notes += kept
    check(config)
    return Loaded(_with_folder(config, environment), notes, details, tuple(warnings))


def in_cluster(config: StandaloneConfig) -> StandaloneConfig:
    """The settings of one of several brokers of a cluster: without the default folder, which is a standalone
    server's, as nothing that such a broker needs is in a folder."""
    return replace(config, data_dir=None) if config.data_dir == default_data_dir() else config


def _with_folder(config: StandaloneConfig, environment: Mapping[str, str]) -> StandaloneConfig:
    if config.data_dir is not None:
        return replace(config, data_dir=config.data_dir.expanduser().absolute())
    return config if config.ephemeral else replace(config, data_dir=default_data_dir(environment))


def _from_toml(file: Path, warnings: list[str], beside: Set[str]) -> dict[str, object]:
    # Imported here, so that only a process with a file loads the parser.
    import tomllib

    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(
            f"configuration {file} cannot be read: {error.strerror}; check the path given to --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"configuration {file} is not valid TOML: {error}; correct it") from error
    settings: dict[str, object] = {}
    for key, value in document.items():
        where = f"configuration {file}, key {key!r}"
        if key in FORMER_NAMES:
            now = FORMER_NAMES[key]
            warnings.append(_renamed(where, now, ignored=now in document))
            settings.setdefault(now, read(now, value, where))
            continue
        if key in beside:
            continue
        if key not in KEYS:
            raise StartupError(f"configuration {file} has an unknown key {key!r}; {_suggestion(key)}")
        settings[key] = read(key, value, where)
    return settings


def _from_environment(environment: Mapping[str, str], warnings: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for former, now in FORMER_NAMES.items():
        variable = _variable(former)
        if variable in environment:
            where = f"environment variable {variable}"
            warnings.append(_renamed(where, _variable(now), ignored=_variable(now) in environment))
            settings[now] = read(now, environment[variable], where)
    for key in KEYS:
        variable = _variable(key)
        if variable in environment:
            settings[key] = read(key, environment[variable], f"environment variable {variable}")
    return settings


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper()


def _renamed(where: str, now: str, *, ignored: bool) -> str:
    effect = f"{now} is given as well and counts" if ignored else "a later release refuses the former name"
    return f"{where}: the setting is called {now} now; {effect}"


def _names_pulsar(environment: Mapping[str, str]) -> bool:
    """Whether a variable may be one of Pulsar's settings: those have a capital after a small letter."""
    return any(
        name.startswith("PULSAR_PREFIX_") or (name[:1].islower() and not name.islower())
        for name in environment
    )


def _suggestion(key: str) -> str:
    # A module that only a mistake needs.
    import difflib

    close = difflib.get_close_matches(key.replace("-", "_").lower(), KEYS, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known keys are {', '.join(KEYS)}"
