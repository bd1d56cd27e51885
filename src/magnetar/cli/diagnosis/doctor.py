"""`magnetar doctor`: checks this machine and a broker for problems."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from magnetar.base.errors import MagnetarError
from magnetar.cli import exit_codes
from magnetar.cli.caller import Caller, calls
from magnetar.cli.exit_codes import code_of
from magnetar.cli.output import styled
from magnetar.cli.storage.damage import default_data, storage
from magnetar.cli.storage.metadata_damage import metadata

GOOD: Final = "ok"
DOUBTFUL: Final = "doubtful"
BAD: Final = "failed"
_COLORS: Final = {GOOD: "green", DOUBTFUL: "yellow", BAD: "red"}

_SYNCS: Final = 20
_SYNC_DOUBTFUL_MS: Final = 20.0
"""Milliseconds of a sync above which the disk counts as slow; each acknowledgement waits for one sync."""
_FREE_DOUBTFUL: Final = 0.10
_FREE_BAD_BYTES: Final = 1 << 30
_FILES_DOUBTFUL: Final = 4096
_CLOCK_DOUBTFUL_MS: Final = 1_000
_DAYS_DOUBTFUL: Final = 30
"""Days before its end at which a certificate should be renewed."""
_HEALTH_TOPIC: Final = "persistent://pulsar/system/healthcheck"
"""Topic of the broker's health check."""


class DoctorFinding(NamedTuple):
    """The result of one check."""

    check: str
    state: str
    detail: str


@click.group(invoke_without_command=True, epilog="Example: magnetar doctor --data /var/lib/magnetar")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of the broker's data.  [~/.local/share/magnetar]"
)
@click.option("--local", is_flag=True, help="Check this machine only, without a call to the broker.")
@calls
def doctor(caller: Caller, data: Path | None, local: bool) -> int:
    """Check disk, sync speed, limits and ports of this machine, and the broker's health and clock."""
    if click.get_current_context().invoked_subcommand is not None:
        return 0
    folder = data or default_data()
    found = []
    for finding in (*machine(folder), *(() if local else broker(caller))):
        found.append(finding)
        if caller.output == "table":
            click.echo(
                f"{styled(f'{finding.state:9}', fg=_COLORS[finding.state])} {finding.check}: {finding.detail}"
            )
    if caller.output != "table":
        caller.show([finding._asdict() for finding in found])
    return exit_codes.NOT_FOUND if any(finding.state == BAD for finding in found) else 0


doctor.add_command(storage)
doctor.add_command(metadata)


def machine(folder: Path) -> Iterator[DoctorFinding]:
    """Checks this machine. `folder`: data folder of a broker."""
    yield DoctorFinding(
        "python", GOOD, f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    there = folder
    while not there.exists():
        there = there.parent
    yield _space(there)
    yield _syncs(there)
    yield _files()


def _space(folder: Path) -> DoctorFinding:
    usage = shutil.disk_usage(folder)
    detail = f"{usage.free / (1 << 30):.1f} GiB of {usage.total / (1 << 30):.1f} GiB free for {folder}"
    if usage.free < _FREE_BAD_BYTES:
        return DoctorFinding("disk", BAD, f"{detail}; free some, or name another folder")
    return DoctorFinding("disk", DOUBTFUL if usage.free < _FREE_DOUBTFUL * usage.total else GOOD, detail)


def _syncs(folder: Path) -> DoctorFinding:
    """Measures small syncs, on which the latency of acknowledgements depends."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            taken = []
            for _ in range(_SYNCS):
                file.write(bytes(4096))
                file.flush()
                began_s = time.perf_counter()
                os.fsync(file.fileno())
                taken.append((time.perf_counter() - began_s) * 1000)
    except OSError as error:
        return DoctorFinding("sync", BAD, f"{folder} cannot be written: {error.strerror}; check its owner")
    taken.sort()
    middle, worst = taken[len(taken) // 2], taken[-1]
    state = GOOD if middle < _SYNC_DOUBTFUL_MS else DOUBTFUL
    return DoctorFinding(
        "sync", state, f"{middle:.1f} ms in the middle, {worst:.1f} ms at worst, of {_SYNCS}"
    )


def _files() -> DoctorFinding:
    try:
        import resource
    except ImportError:
        return DoctorFinding("open files", DOUBTFUL, "this system does not tell")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"{soft} may be open, {hard} at most"
    if 0 <= hard < _FILES_DOUBTFUL:
        return DoctorFinding(
            "open files", DOUBTFUL, f"{detail}: few clients will find room; raise `ulimit -n`"
        )
    return DoctorFinding("open files", GOOD, detail)


def broker(caller: Caller) -> Iterator[DoctorFinding]:
    """Checks the broker."""
    from magnetar.adminclient import paths

    yield _port("admin API", caller.admin_url)
    yield _port("broker", caller.service_url)
    yield from _certificate(caller)
    try:
        with caller.admin() as admin:
            version = admin.call("GET", f"{paths.ROOT}/brokers/version")
            yield DoctorFinding("version", GOOD, str(version))
            before_ms = _now_ms()
            admin.call("GET", f"{paths.ROOT}/brokers/health")
            after_ms = _now_ms()
        took_ms = after_ms - before_ms
        yield DoctorFinding("health", GOOD, f"a message was written, synced and read back in {took_ms} ms")
        yield _clock(caller, before_ms, after_ms)
        yield from _metrics(caller)
    except MagnetarError as error:
        if code_of(error) == exit_codes.NOT_ALLOWED:
            yield DoctorFinding("health", DOUBTFUL, f"it cannot be asked with these rights: {error}")
        else:
            yield DoctorFinding("health", BAD, str(error))


def _port(what: str, url: str) -> DoctorFinding:
    from urllib.parse import urlsplit

    parts = urlsplit(url.partition(",")[0])
    usual = {"http": 8080, "https": 8443, "pulsar": 6650, "pulsar+ssl": 6651}
    try:
        port = parts.port or usual[parts.scheme]
        socket.create_connection((parts.hostname or "", port), timeout=5).close()
    except (OSError, KeyError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return DoctorFinding(what, BAD, f"{url} cannot be reached: {reason}; is it running?")
    return DoctorFinding(what, GOOD, f"{url} answers")


def _certificate(caller: Caller) -> Iterator[DoctorFinding]:
    """Checks the end of the broker's certificate, if it has a trusted one."""
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(caller.admin_url)
    if parts.scheme != "https":
        return
    context = ssl.create_default_context(cafile=caller.place.trust_certs or None)
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 8443), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as secured,
        ):
            ends_s = ssl.cert_time_to_seconds(str((secured.getpeercert() or {})["notAfter"]))
    except (OSError, KeyError) as error:
        yield DoctorFinding("certificate", BAD, f"it is not taken: {error}; see --trust-certs and its names")
        return
    days = int((ends_s - time.time()) / 86_400)
    detail = f"it ends in {days} days"
    if days < _DAYS_DOUBTFUL:
        yield DoctorFinding("certificate", DOUBTFUL, f"{detail}: make a new one (docs/security.md)")
    else:
        yield DoctorFinding("certificate", GOOD, detail)


def _metrics(caller: Caller) -> Iterator[DoctorFinding]:
    """Checks the broker's metrics."""
    with caller.admin() as admin:
        try:
            text = str(admin.call("GET", "/metrics"))
        except MagnetarError as error:
            yield DoctorFinding("metrics", DOUBTFUL, f"they cannot be seen with these rights: {error}")
            return
    yield from history(text)
    yield from _canaries(text)


def history(metrics: str) -> Iterator[DoctorFinding]:
    """Checks the object stores; yields nothing when the broker has none or does not show them."""
    read_only = _sum(metrics, "magnetar_offload_stores_read_only")
    gone = _sum(metrics, "magnetar_lake_files_gone")
    if read_only:
        yield DoctorFinding(
            "history",
            BAD,
            f"{read_only} object stores are another installation's, and nothing is offloaded to them:"
            " `magnetar offload stores` says why",
        )
    if gone:
        yield DoctorFinding(
            "history",
            BAD,
            f"{gone} objects of offloaded messages are gone: `magnetar lake status` names them; restore them"
            " from a backup or an earlier version of the bucket's objects",
        )
    if read_only == 0 and not gone:
        yield DoctorFinding(
            "history", GOOD, "its object stores may be written, and no object is known to be gone"
        )


def _sum(metrics: str, name: str) -> int | None:
    """Sum of a metric's series; None without any."""
    rows = (line.rpartition(" ") for line in metrics.splitlines())
    values = [float(value) for series, _, value in rows if series.partition("{")[0] == name]
    return int(sum(values)) if values else None


def _canaries(metrics: str) -> Iterator[DoctorFinding]:
    from magnetar.cli.diagnosis.canaries import canaries_of, summary

    found = canaries_of(metrics)
    if found:
        bad = any(not canary.up or canary.lost for canary in found)
        yield DoctorFinding("canaries", BAD if bad else GOOD, summary(found).removeprefix("canaries: "))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock(caller: Caller, before_ms: int, after_ms: int) -> DoctorFinding:
    """Checks that the broker's time of the health check's message lies between these times."""
    from magnetar.base.names import TopicName
    from magnetar.cli.messages.topic_reading import Range, TopicReading

    try:
        with caller.client() as client:
            (last,) = TopicReading(client, TopicName.parse(_HEALTH_TOPIC), Range(last=1)).records()
            noted_ms = last.broker_time_ms
    except (MagnetarError, ValueError):
        noted_ms = None
    if noted_ms is None:
        return DoctorFinding("clock", DOUBTFUL, "the broker's time cannot be seen with these rights")
    off_ms = min(max(noted_ms, before_ms), after_ms) - noted_ms
    if abs(off_ms) <= _CLOCK_DOUBTFUL_MS:
        return DoctorFinding("clock", GOOD, "this machine and the broker agree")
    ahead = "ahead of" if off_ms > 0 else "behind"
    return DoctorFinding("clock", DOUBTFUL, f"this machine is {abs(off_ms)} ms {ahead} the broker: check NTP")
