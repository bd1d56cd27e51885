"""Finds damaged values in the metadata, of a data folder or of a service. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import MagnetarError, StartupError
from magnetar.metadata import keys, paths
from magnetar.metadata.adoption import PULSAR_PATHS, RECORD, home_of, scope_of, store_of_cluster
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.opening import MetadataUrl, open_metadata, parse_metadata_url
from magnetar.metadata.scoped import ScopedMetadataStore
from magnetar.metadata.store import MetadataStore, Value
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.file_lock import FileLock
from magnetar.runtime.tasks import gathered, yield_loop
from magnetar.server.storage.metadata_kinds import ValueKind, kind_of

_ROOTS: Final = (
    keys.ADMIN,
    keys.MANAGED_LEDGERS,
    keys.SCHEMAS,
    keys.BOOKIE_RACKS,
    keys.RESOURCE_QUOTAS,
    keys.LEDGERS,
    "/magnetar",
)
"""Below them lies all that has a kind."""
_TOGETHER: Final = 64
"""Values that are read at once."""
_PATIENCE_S: Final = 10.0
"""Seconds after which an operator is told that the metadata service cannot be reached."""

_RECORD_LOST: Final = "brokers of the cluster do not start, since where its metadata lies is not known"
_RECORD_REMEDY: Final = "delete the value, and adopt the cluster again (`magnetar cluster adopt`)"


@dataclass(frozen=True, slots=True)
class DamagedValue:
    """A value that cannot be used, or parts of which cannot."""

    path: str
    kind: str
    """As in the table of `magnetar.metadata.keys`."""
    damage: str
    """What is wrong with it."""
    consequence: str
    remedy: str
    partly: bool
    """Whether the rest of the value counts."""


@dataclass(slots=True)
class MetadataReport:
    """What was found."""

    values: int = 0
    """Values that were checked."""
    damaged: list[DamagedValue] = field(default_factory=list)


async def of_folder(root: Path) -> MetadataReport:
    """Checks the metadata in a data folder, whose broker must be stopped.

    Raises StartupError, StorageError.
    """
    file = root / "metadata" / "metadata.db"
    if not file.exists():
        raise StartupError(
            f"{root} holds no metadata: name the data folder of a broker, or the service with --metadata"
        )
    lock = FileLock(root / "LOCK", f"the data folder {root}")
    try:
        store = EmbeddedMetadataStore.open(file, clock=SystemClock())
        try:
            return await of_store(store)
        finally:
            await store.close()
    finally:
        lock.release()


async def of_service(url: str, cluster: str) -> MetadataReport:
    """Checks the metadata of a cluster at a service; brokers may run. Raises StartupError, MetadataError."""
    parsed = parse_metadata_url(url)
    if parsed.kind not in ("zk", "etcd"):
        raise StartupError(f"{url!r}: brokers of a cluster share a service, zk://… or etcd://…")
    service = await open_metadata(parsed, SystemClock(), call_timeout_s=_PATIENCE_S)
    try:
        return await _of_service(service, parsed, cluster)
    finally:
        await service.close()


async def _of_service(service: MetadataStore, url: MetadataUrl, cluster: str) -> MetadataReport:
    scope = scope_of(cluster)
    report = MetadataReport()
    try:
        own, adopted = await store_of_cluster(service, cluster)
    except DamagedDocumentError as error:
        report.values += 1
        report.damaged.append(
            DamagedValue(error.path, RECORD, error.reason, _RECORD_LOST, _RECORD_REMEDY, partly=False)
        )
        own, adopted = ScopedMetadataStore(service, scope), False
    # Our brokers are below the cluster's own node; ledgers and racks lie where BookKeeper has them.
    beside = PULSAR_PATHS if adopted else frozenset({keys.BOOKIE_RACKS})
    roots = [root for root in _ROOTS if root != keys.LEDGERS]
    theirs = [root for root in roots if root[: (root + "/").find("/", 1)] in beside]
    await _look(own, [root for root in roots if root not in theirs], report, scope)
    home = home_of(url.root) if adopted else ""
    await _look(own, theirs, report, home, adopted=adopted)
    await _look(service, [url.root], report, shared=True)
    return report


async def of_store(store: MetadataStore) -> MetadataReport:
    """Checks the metadata of a broker that shares it with no other."""
    report = MetadataReport()
    await _look(store, _ROOTS, report)
    return report


async def _look(
    store: MetadataStore,
    roots: Iterable[str],
    report: MetadataReport,
    scope: str = "",
    *,
    shared: bool = False,
    adopted: bool = False,
) -> None:
    """`scope`: what the paths of `store` lack. `shared`: whether these are BookKeeper's own nodes, among
    which the generator of ids has no value. `adopted`: whether they are Pulsar's."""
    for root in roots:
        async for path, value, parent in _values(store, root):
            kind = kind_of(path, adopted=adopted)
            if kind is None or (shared and path.endswith("/idgen")):
                continue
            if not value.data and parent and not kind.never_empty:
                continue
            report.values += 1
            if (found := look_at(kind, path, value.data)) is not None:
                damage, partly = found
                report.damaged.append(
                    DamagedValue(scope + path, kind.name, damage, kind.consequence, kind.remedy, partly)
                )


def look_at(kind: ValueKind, path: str, data: bytes) -> tuple[str, bool] | None:
    """What is wrong with a value, and whether only with parts of it; None: nothing."""
    try:
        ignored = kind.check(path, data)
    except DamagedDocumentError as error:
        return error.reason, False
    except (MagnetarError, ValueError) as error:
        return str(error), False
    return (f"ignored: {', '.join(ignored)}", True) if ignored else None


async def _values(store: MetadataStore, root: str) -> AsyncIterator[tuple[str, Value, bool]]:
    """All values from `root` on, with whether they have children."""
    waiting = [root]
    while waiting:
        part, waiting = waiting[-_TOGETHER:], waiting[:-_TOGETHER]
        values = await gathered(store.get(path) for path in part)
        children = await gathered(store.children(path) for path in part)
        for path, value, names in zip(part, values, children, strict=True):
            waiting += [paths.join(path, name) for name in names]
            if value is not None:
                yield path, value, bool(names)
        await yield_loop()
