"""Announces that a process has started: a banner for users, a file for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import magnetar
from magnetar.base.errors import StartupError


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of a process, with the ports that it really got."""

    broker_url: str
    """`pulsar://host:port`"""
    http_url: str
    """`http://host:port`"""
    broker_tls_url: str = ""
    """`pulsar+ssl://host:port`; "": TLS is not served."""
    https_url: str = ""
    """`https://host:port`; "": TLS is not served."""
    flight_sql_url: str = ""
    """`grpc://host:port`, or `grpc+tls://`; "": it is off."""


def banner(
    endpoints: Endpoints,
    *,
    version: str,
    data_dir: Path | None,
    authentication: str = "",
    ready_ms: float | None = None,
) -> str:
    """Lines for a terminal. `data_dir` None: no data is kept. `authentication`: the providers, "" for none.
    `ready_ms`: milliseconds since the process began."""
    if data_dir is None:
        data, durability = "none, everything goes with the process", "ephemeral: nothing survives"
    else:
        data, durability = str(data_dir), "acknowledged after fsync"
    after = "" if ready_ms is None else f" in {ready_ms:.0f} ms"
    lines = [
        f"Magnetar {version} is ready{after}",
        "",
        f"  Pulsar clients   {endpoints.broker_url}",
        f"  Admin, metrics   {endpoints.http_url}  (/admin/v2, /metrics)",
        *(
            [f"  Over TLS         {endpoints.broker_tls_url}  {endpoints.https_url}"]
            if endpoints.https_url
            else []
        ),
        *([f"  Flight SQL       {endpoints.flight_sql_url}"] if endpoints.flight_sql_url else []),
        f"  Data             {data}",
        f"  Durability       {durability}",
        *([f"  Credentials      {authentication}"] if authentication else []),
        "",
        # With authentication a path that needs no credentials.
        f"  Try              curl {endpoints.http_url}"
        + ("/status.html" if authentication else "/admin/v2/persistent/public/default"),
        "  Stop             Ctrl-C",
        "",
    ]
    return "\n".join(lines)


def say(endpoints: Endpoints, *, data_dir: Path | None, authentication: str) -> None:
    """Writes the banner to the terminal."""
    text = banner(endpoints, version=magnetar.__version__, data_dir=data_dir, authentication=authentication)
    sys.stdout.write(text)
    sys.stdout.flush()


def write_ready_file(path: Path, endpoints: Endpoints, *, data_dir: Path | None) -> None:
    """Writes a JSON object of `pid`, `broker_url`, `http_url`, `data_dir` (null without persistence), and
    with TLS `broker_tls_url` and `https_url`, and `flight_sql_url` where that is on.

    Renamed into place: a reader never sees a partial file. Raises StartupError.
    """
    document = {
        "pid": os.getpid(),
        "broker_url": endpoints.broker_url,
        "http_url": endpoints.http_url,
        "data_dir": None if data_dir is None else str(data_dir),
    }
    if endpoints.https_url:
        document |= {"broker_tls_url": endpoints.broker_tls_url, "https_url": endpoints.https_url}
    if endpoints.flight_sql_url:
        document["flight_sql_url"] = endpoints.flight_sql_url
    write_ready(path, document)


def write_ready(path: Path, document: Mapping[str, object]) -> None:
    """Writes a ready file of any process; see `write_ready_file`. Raises StartupError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(document) + "\n")
        new.replace(path)
    except OSError as error:
        raise StartupError(
            f"the ready file {path} cannot be written: {error.strerror}; choose another place for it"
        ) from error


def remove_ready_file(path: Path) -> None:
    """Removes the ready file when the process stops."""
    path.unlink(missing_ok=True)
