"""`magnetar debug bundle`: collects the information for support in one file, without secrets."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magnetar.base.errors import MagnetarError
from magnetar.base.redaction import scrubbed, without_secrets
from magnetar.cli.caller import Caller, calls

if TYPE_CHECKING:
    from magnetar.adminclient.admin import Admin

_LOG_BYTES_MAX: Final = 4 << 20
_TOPICS_MAX: Final = 200


@click.group()
def debug() -> None:
    """Collect information for support in one file."""


@debug.command(epilog="Example: magnetar debug bundle trouble.tar.gz --topic orders --log broker.log")
@click.argument("file", type=click.Path(path_type=Path), default=Path("magnetar-debug.tar.gz"))
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Topic whose statistics to include; may be repeated.  [all, up to 200]",
)
@click.option(
    "--log",
    "logs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Log file whose end to include; may be repeated.  [none]",
)
@calls
def bundle(caller: Caller, file: Path, topics: tuple[str, ...], logs: tuple[Path, ...]) -> None:
    """Write settings, statistics, metrics and the doctor's findings to FILE, without secrets. The file has
    names of topics, roles and hosts, and no payloads.
    """
    written: list[str] = []
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
            os.fchmod(descriptor, 0o600)
            for name, content in _contents(caller, topics, logs):
                data = content.encode()
                entry = tarfile.TarInfo(f"magnetar-debug/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
                written.append(name)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
    click.echo(f"{file} has {', '.join(written)}")
    click.echo("secrets are removed; read the file before you send it", err=True)


def _contents(caller: Caller, topics: tuple[str, ...], logs: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    from magnetar import __version__, twin
    from magnetar.cli.diagnosis.doctor import broker, machine

    about = {
        "magnetar": f"{__version__} ({twin.description()})",
        "python": platform.python_version(),
        "system": platform.platform(),
        "admin_url": caller.admin_url,
        "service_url": caller.service_url,
    }
    yield "about.json", _json(about)
    findings = (*machine(Path.home()), *broker(caller))
    yield "doctor.json", _json([finding._asdict() for finding in findings])
    with caller.admin() as admin:
        for name, ask in _questions(admin):
            yield name, _asked(ask)
        chosen = topics or _all_topics(admin)
        yield "topics.json", _json({topic: _asked_document(admin, topic) for topic in chosen})
    for log in logs:
        yield f"logs/{log.name}", scrubbed(_end_of(log))


def _questions(admin: Admin) -> Iterator[tuple[str, Callable[[], object]]]:
    root = "/admin/v2"
    for name, path in {
        "settings.json": f"{root}/brokers/configuration/runtime",
        "changed-settings.json": f"{root}/brokers/configuration/values",
        "clusters.json": f"{root}/clusters",
        "brokers.json": f"{root}/brokers",
        "metrics.txt": "/metrics",
    }.items():
        yield name, lambda path=path: admin.call("GET", path)  # type: ignore[misc]  # bound by its default
    yield (
        "namespaces.json",
        lambda: {
            space: admin.call("GET", f"{root}/namespaces/{space}")
            for tenant in admin.tenants()
            for space in admin.namespaces(tenant)
        },
    )


def _asked(ask: Callable[[], object]) -> str:
    """The answer of a call without secrets, or the text of its error."""
    try:
        answer = ask()
    except MagnetarError as error:
        answer = {"error": str(error)}
    return scrubbed(answer) if isinstance(answer, str) else _json(answer)


def _asked_document(admin: Admin, topic: str) -> object:
    try:
        return {"stats": admin.stats(topic), "explain": admin.explain(topic)}
    except MagnetarError as error:
        return {"error": str(error)}


def _all_topics(admin: Admin) -> list[str]:
    try:
        found = [
            topic
            for tenant in admin.tenants()
            for space in admin.namespaces(tenant)
            for topic in admin.topics(space)
        ]
    except MagnetarError:
        return []
    return found[:_TOPICS_MAX]


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES_MAX))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"{log} cannot be read: {error.strerror}"


def _json(document: object) -> str:
    return json.dumps(without_secrets(document), indent=2, ensure_ascii=False) + "\n"
