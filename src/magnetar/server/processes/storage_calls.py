"""What the storage process answers the broker processes, besides calls of its metadata: its metrics, and
points in time of the data folder for backups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from magnetar.metadata.served.metadata_server import MetadataServer
from magnetar.observability import logs, process
from magnetar.observability.catalogue import text_of
from magnetar.observability.merging import as_answer, ups
from magnetar.observability.metrics import Exposition, Registry
from magnetar.runtime.local_calls import Answering
from magnetar.runtime.scraping import families_of
from magnetar.server.backup.staging import Staged, Staging
from magnetar.server.bookies.beside_storage import BesideStorage
from magnetar.server.processes.all_metrics import METRICS, STORAGE
from magnetar.server.processes.distant_points import BEGIN, END, RENEW


def calls_of(server: MetadataServer, beside: BesideStorage, points: Staging) -> Mapping[str, Answering]:
    """All calls, by name."""
    registry = Registry()
    for collect in (
        process.collect,
        logs.collect,
        beside.guard.collect_metrics,
        partial(_collect_sessions, server),
    ):
        registry.collector(collect)

    async def metrics(said: Mapping[str, str]) -> object:
        bookies = await beside.bookies.metrics()
        families = await families_of(registry, STORAGE)
        families += ups({name: found is not None for name, found in bookies.items()})
        for found in bookies.values():
            families += found or []
        return as_answer(families)

    async def begin(said: Mapping[str, str]) -> object:
        return _as_json(await points.begin())

    async def renew(said: Mapping[str, str]) -> object:
        return await points.renew(said["id"])

    async def end(said: Mapping[str, str]) -> object:
        return await points.end(said["id"])

    return {METRICS: metrics, BEGIN: begin, RENEW: renew, END: end}


def _as_json(taken: Staged) -> object:
    return {"id": taken.staged_id, "folder": str(taken.folder.absolute())}


def _collect_sessions(server: MetadataServer, out: Exposition) -> Iterable[None]:
    name = "magnetar_storage_sessions"
    out.gauge(name, text_of(name), server.sessions)
    name = "magnetar_storage_calls_total"
    out.counter(name, text_of(name), server.answered)
    yield
