"""Iceberg tables over topics: status, full checks and upkeep on request, and their results.

Not a part of Pulsar's API. POST starts long work and GET returns its result, as for offloading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

from magnetar.admin.calls.call import Call, Document, Route, natural
from magnetar.admin.calls.errors import NotHereError, NotImplementedHereError
from magnetar.admin.offload.offload import NO_STORE
from magnetar.admin.topics.topics import loaded, refuse_partitioned
from magnetar.base.names import TopicName
from magnetar.broker.errors import ConflictError
from magnetar.lake.jobs import JobRunningError
from magnetar.lake.lake_values import TableStatus
from magnetar.lake.naming import table_name
from magnetar.lake.tables import LakeTables
from magnetar.tiered.merging import TARGET_BYTES

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/lake"
_VERIFY: Final = "verify"
_MAINTAIN: Final = "maintain"
_MERGE: Final = "merge"
KEEP_SECONDS: Final = 5 * 86_400
"""Seconds after which snapshots expire, except the last ones. Default of the query."""
KEEP_SNAPSHOTS: Final = 10


def _lake(call: Call) -> LakeTables:
    if call.broker.lake is None:
        raise NotImplementedHereError(
            "this broker has no tables: pip install '.[lake]' in a clone, and set"
            " lake_catalog to other than none; brokers of a cluster have no default catalog"
        )
    return call.broker.lake


async def tables(call: Call) -> object:
    """All tables of the catalog, and the logs whose tables are not up to date."""
    lake = _lake(call)
    topics = await lake.tables()
    return {
        "tables": [{"topic": text, "table": str(table_name(TopicName.parse(text)))} for text in topics],
        "behind": [{"log": name, "error": error} for name, error in sorted(lake.errors.items())],
    }


async def status(call: Call) -> object:
    """The table of a topic with all partitions, and whether it matches the stored lists."""
    lake = _lake(call)
    topic = call.topic().base
    found = await lake.status(topic)
    if found is None:
        raise NotHereError(
            f"{topic} has no table: nothing of it is offloaded yet. A ledger is, when it is sealed and the"
            " threshold says so (docs/tiered-storage.md)"
        )
    lists = await lake.lists(topic)
    files = [file for listed in lists for file in listed.files]
    error = next((text for name in await lake.logs_of(topic) if (text := lake.errors.get(name))), "")
    size = sum(file.file_bytes for file in files)
    return {
        "topic": str(topic),
        **_document(found),
        "listedFiles": len(files),
        "listedBytes": size,
        "upToDate": (found.files, found.file_bytes) == (len(files), size) and not error,
        "error": error,
    }


def _document(found: TableStatus) -> Document:
    return {
        "table": found.table,
        "location": found.location,
        "metadataLocation": found.metadata_location,
        "files": found.files,
        "bytes": found.file_bytes,
        "rows": found.rows,
        "snapshots": found.snapshots,
        "lastSnapshot": found.snapshot_id,
        "lastSnapshotTimestamp": found.snapshot_ms,
        "schemaId": found.schema_id,
        "columns": found.columns,
    }


async def start_verify(call: Call) -> None:
    """Starts a comparison of table, stored lists and all objects; 409 while one runs."""
    lake, topic = _lake(call), call.topic().base
    _start(lake, topic, _VERIFY, lambda at: lake.verify(topic, at))


async def start_maintain(call: Call) -> None:
    """Starts upkeep: expires snapshots and deletes unnamed metadata; `?dryRun=true` only counts them."""
    lake, topic = _lake(call), call.topic().base
    keep_s = natural(call.query.get("keepSeconds", str(KEEP_SECONDS)), "keepSeconds")
    keep_min = natural(call.query.get("keepSnapshots", str(KEEP_SNAPSHOTS)), "keepSnapshots")
    dry_run = call.flag("dryRun")
    _start(
        lake,
        topic,
        _MAINTAIN,
        lambda at: lake.maintain(topic, keep_ms=keep_s * 1000, keep_min=keep_min, dry_run=dry_run, at=at),
    )


async def start_merge(call: Call) -> None:
    """Starts a merge of small objects of a topic or partition.

    `?targetBytes=`: largest object; `?dryRun=true` only counts them.
    """
    lake, topic, offloading = _lake(call), call.topic(), call.broker.offloading
    if offloading is None:
        raise NotImplementedHereError(NO_STORE)
    await refuse_partitioned(call.broker, topic, "merging")
    target_bytes = natural(call.query.get("targetBytes", str(TARGET_BYTES)), "targetBytes")
    dry_run = call.flag("dryRun")
    log = (await loaded(call.broker, topic)).log.offloading

    async def work(at: Callable[[int, int], None]) -> Document:
        return asdict(await offloading.merge(log, target_bytes=target_bytes, dry_run=dry_run, progress=at))

    _start(lake, topic, _MERGE, work)


def _start(
    lake: LakeTables,
    topic: TopicName,
    kind: str,
    work: Callable[[Callable[[int, int], None]], Awaitable[object]],
) -> None:
    try:
        lake.jobs.start(str(topic), kind, work)
    except JobRunningError as error:
        raise ConflictError(str(error)) from error


def _progress(call: Call, topic: TopicName, kind: str) -> Document:
    job = _lake(call).jobs.of(str(topic), kind)
    return {
        "status": job.status.value,
        "lastError": job.error,
        "done": job.done,
        "total": job.total,
        "result": job.result,
    }


async def verify(call: Call) -> object:
    """Status of the last check."""
    return _progress(call, call.topic().base, _VERIFY)


async def maintain(call: Call) -> object:
    """Status of the last upkeep."""
    return _progress(call, call.topic().base, _MAINTAIN)


async def merge(call: Call) -> object:
    """Status of the last merge."""
    return _progress(call, call.topic(), _MERGE)


ROUTES: list[Route] = [
    ("GET", "/admin/v2/lake", tables),
    ("GET", _T, status),
    ("POST", f"{_T}/{_VERIFY}", start_verify),
    ("GET", f"{_T}/{_VERIFY}", verify),
    ("POST", f"{_T}/{_MAINTAIN}", start_maintain),
    ("GET", f"{_T}/{_MAINTAIN}", maintain),
    ("POST", f"{_T}/{_MERGE}", start_merge),
    ("GET", f"{_T}/{_MERGE}", merge),
]
