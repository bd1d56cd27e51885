"""What can be set for `magnetar standalone`.

Each setting is a field of `StandaloneConfig`. Where it may be set, the first that says something wins:

    command line          --port 0
    environment           MAGNETAR_BROKER_PORT=0        MAGNETAR_ and the field's name in capitals
    file                  broker_port = 0               TOML, the field's name, in the file of --config
    default               the field's default

In the environment and in the file, sizes may be written with a unit: "64MiB", "1GiB". Variables of
the environment that name no field are ignored, since other programs may set MAGNETAR_ variables too;
an unknown key in the file is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from magnetar.auth.settings import METHODS
from magnetar.base.errors import StartupError
from magnetar.base.names import is_entity_name

MIB: Final = 1 << 20
PORT_MAX: Final = 65535
UNLIMITED: Final = -1
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
ENVIRONMENT_PREFIX: Final = "MAGNETAR_"

_UNITS: Final = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneConfig:
    """Settings of one standalone process. Made by `load`, which checks them."""

    host: str = "127.0.0.1"
    """Address to listen on, for both ports. "0.0.0.0" takes every IPv4 interface."""
    advertised_address: str = ""
    """Host that clients are told to connect to; empty: `host`, or the machine's name when `host` takes
    every interface."""
    broker_port: int = 6650
    """TCP port of the Pulsar protocol; 0 takes a free one."""
    http_port: int = 8080
    """TCP port of admin, lookup and metrics; 0 takes a free one."""
    data_dir: Path | None = None
    """Folder of everything durable; None: see `default_data_dir`. Without meaning when `ephemeral`."""
    ephemeral: bool = False
    """Keep nothing: metadata in memory, messages in a folder that goes with the process, no fsync."""
    cluster: str = "standalone"
    """Name of the cluster."""
    max_message_bytes: int = 5 * MIB
    """Largest message, told to clients on connecting. 1 KiB to 128 MiB."""
    cache_bytes: int = 64 * MIB
    """Newest entries that are kept in memory, over all topics. At least 1 MiB."""
    publish_pending_bytes_max: int = 64 * MIB
    """Bytes taken from producers and not yet durable, over all connections; beyond them the broker
    stops reading from producers. At least `max_message_bytes`."""
    connection_output_bytes_max: int = 4 * MIB
    """Bytes waiting to be sent on one connection; beyond them its consumers get no more. At least 64 KiB."""
    segment_bytes: int = 256 * MIB
    """Size of a segment of the message store; so much disk is set aside at once. At least 1 MiB."""
    retention_minutes: int = 0
    """How long messages stay after all subscriptions acknowledged them, where the namespace says
    nothing; -1: for ever. As in Pulsar, both retention settings must allow it to keep a message."""
    retention_mib: int = 0
    """MiB of acknowledged messages that a topic keeps, where the namespace says nothing; -1: no limit."""
    deduplication: bool = False
    """Whether topics drop what a producer sends again, where neither they nor their namespace say."""
    deduplication_producers_max: int = 10_000
    """Producers of a topic whose numbers are remembered after they left. At least 1."""
    deduplication_inactivity_minutes: int = 360
    """How long they are remembered. At least 1."""
    auto_topic_creation: bool = True
    """Whether a producer or consumer makes a topic that does not exist."""
    insecure: bool = False
    """Let other machines do everything: needed for a `host` that they can reach, without authentication."""
    tls_certificate: Path | None = None
    """Certificate chain, PEM. With it and `tls_key`, TLS is served besides the plain ports."""
    tls_key: Path | None = None
    """Private key of the certificate, PEM."""
    tls_ca: Path | None = None
    """Certificates, PEM, of those who sign clients' certificates; None: clients are not asked for one."""
    tls_require_client_certificate: bool = False
    """Whether TLS clients without a valid certificate are refused; else they may show something else."""
    broker_tls_port: int = 6651
    """TCP port of the Pulsar protocol over TLS; 0 takes a free one."""
    https_port: int = 8443
    """TCP port of admin, lookup and metrics over TLS; 0 takes a free one."""
    authentication: str = ""
    """Methods, separated by commas, of `tls`, `token` and `basic`; empty: everybody may do everything."""
    anonymous_role: str = ""
    """Role of clients without credentials; empty: they are refused."""
    superuser_roles: str = ""
    """Roles, separated by commas, that may do everything."""
    token_secret_key: Path | None = None
    """File with the secret, at least 32 bytes, of tokens signed by HMAC."""
    token_public_key: Path | None = None
    """File with the public key, PEM or DER, of tokens signed by RSA or EC."""
    token_role_claim: str = "sub"
    """Claim of a token that names the role."""
    token_audience: str = ""
    """What a token's `aud` must hold; empty: it is not looked at."""
    basic_users: Path | None = None
    """htpasswd file of users and password hashes."""
    log_level: str = "info"
    """One of LOG_LEVELS."""
    log_json: bool = False
    """One JSON object for each record of the log."""
    ready_file: Path | None = None
    """Written when the process is ready, for programs that wait for it; see `banner.write_ready_file`."""


def names(text: str) -> tuple[str, ...]:
    """The names in a setting that lists them, separated by commas."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def default_data_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_DATA_HOME/magnetar`, or `~/.local/share/magnetar`. Source: XDG base directories."""
    home = environment.get("XDG_DATA_HOME", "")
    # The specification says that a relative path there is to be ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return base / "magnetar"


def load(
    overrides: Mapping[str, object],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> StandaloneConfig:
    """Reads and checks the settings. `overrides` holds fields given on the command line, None for
    those that were not.

    Raises StartupError for an unreadable file, an unknown key, a value of a wrong type or range.
    """
    settings: dict[str, Any] = {}
    if file is not None:
        settings |= _from_file(file)
    settings |= _from_environment(environment)
    settings |= {name: value for name, value in overrides.items() if value is not None}
    config = StandaloneConfig(**settings)
    _check(config)
    if config.data_dir is None and not config.ephemeral:
        settings["data_dir"] = default_data_dir(environment)
    elif config.data_dir is not None:
        settings["data_dir"] = config.data_dir.expanduser().absolute()
    return StandaloneConfig(**settings)


def _from_file(file: Path) -> dict[str, Any]:
    # Only a process that has a file pays for the parser.
    import tomllib

    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(
            f"configuration {file} cannot be read: {error.strerror}; check the path given to --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"configuration {file} is not valid TOML: {error}; correct it") from error
    settings = {}
    for key, value in document.items():
        if key not in _READERS:
            raise StartupError(f"configuration {file} has an unknown key {key!r}; {_suggestion(key)}")
        settings[key] = _read(key, value, f"configuration {file}, key {key!r}")
    return settings


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    settings = {}
    for key in _READERS:
        variable = ENVIRONMENT_PREFIX + key.upper()
        if variable in environment:
            settings[key] = _read(key, environment[variable], f"environment variable {variable}")
    return settings


def _suggestion(key: str) -> str:
    # A module that only a mistake needs.
    import difflib

    close = difflib.get_close_matches(key.replace("-", "_").lower(), _READERS, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known keys are {', '.join(_READERS)}"


def _read(key: str, value: object, where: str) -> Any:
    kind, read = _READERS[key]
    try:
        return read(value)
    except ValueError:
        raise StartupError(f"{where}: {value!r} is not {kind}; correct it") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def _size(value: object) -> int:
    if not isinstance(value, str):
        return _number(value)
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", value.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError
    return int(match[1]) * _UNITS[match[2].lower()]


def _flag(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in words:
        raise ValueError
    return words[value.lower()]


def _path(value: object) -> Path:
    text = _text(value)
    if not text:
        raise ValueError
    return Path(text).expanduser()


_KINDS: Final[dict[str, tuple[str, Callable[[object], Any]]]] = {
    "str": ("a text", _text),
    "int": ("a whole number", _number),
    "bool": ("true or false", _flag),
    "Path | None": ("a path", _path),
}

_READERS: Final = {
    field.name: ("a size in bytes", _size) if "_bytes" in field.name else _KINDS[str(field.type)]
    for field in fields(StandaloneConfig)
}
"""For each setting what it must be, and what reads it from a file's or a variable's value."""


def _check(config: StandaloneConfig) -> None:
    for name in ("broker_port", "http_port", "broker_tls_port", "https_port"):
        _require(0 <= getattr(config, name) <= PORT_MAX, config, name, f"from 0 to {PORT_MAX}")
    _require(1024 <= config.max_message_bytes <= 128 * MIB, config, "max_message_bytes", "1 KiB to 128 MiB")
    for name in ("cache_bytes", "segment_bytes"):
        _require(getattr(config, name) >= MIB, config, name, "at least 1 MiB")
    largest = config.max_message_bytes
    for name, least in (("publish_pending_bytes_max", largest), ("connection_output_bytes_max", 1 << 16)):
        _require(getattr(config, name) >= least, config, name, f"at least {least}")
    for name in ("retention_minutes", "retention_mib"):
        _require(getattr(config, name) >= UNLIMITED, config, name, "0 or more, or -1 for no limit")
    for name in ("deduplication_producers_max", "deduplication_inactivity_minutes"):
        _require(getattr(config, name) >= 1, config, name, "at least 1")
    _require(config.log_level in LOG_LEVELS, config, "log_level", "one of " + ", ".join(LOG_LEVELS))
    _require(is_entity_name(config.cluster), config, "cluster", "letters, digits and -_=:.")
    _require(bool(config.host), config, "host", "an address or a host name")
    _check_ports(config)
    if (config.tls_certificate is None) != (config.tls_key is None):
        raise StartupError("TLS needs both tls_certificate and tls_key; set both or none")
    if config.tls_require_client_certificate and (config.tls_ca is None or config.tls_certificate is None):
        raise StartupError("tls_require_client_certificate needs TLS and tls_ca to check against; set them")
    for method in names(config.authentication):
        known = ", ".join(METHODS)
        _require(method in METHODS, config, "authentication", f"some of {known}, separated by commas")
    if "tls" in names(config.authentication) and config.tls_ca is None:
        raise StartupError("authentication by tls needs tls_ca, who signs the clients' certificates; set it")
    if config.ephemeral and config.data_dir is not None:
        raise StartupError("ephemeral keeps nothing, so a data folder makes no sense; drop one of the two")


def _check_ports(config: StandaloneConfig) -> None:
    taken: dict[int, str] = {}
    tls = ("broker_tls_port", "https_port") if config.tls_certificate is not None else ()
    for name in ("broker_port", "http_port", *tls):
        port = getattr(config, name)
        if port and port in taken:
            raise StartupError(f"{taken[port]} and {name} are both {port}; choose two")
        taken[port] = name


def _require(condition: bool, config: StandaloneConfig, name: str, rule: str) -> None:
    if not condition:
        raise StartupError(f"{name} is {getattr(config, name)!r}; it must be {rule}")
