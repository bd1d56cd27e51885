"""Keeps tables in step with stored lists: when a copy is complete, before one is deleted, and after crashes.

    a copy is complete      changed()   the table gets its files soon after
    before objects are      retire()    the table stops naming them
    deleted
    a log was deleted       changed()   the table is dropped when no partition is left
    the process starts,     look()      every list is compared with its table; unused tables are dropped
    and every hour

The list is read from the store each time, because the owner of the log may be another process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.lake.jobs import Jobs
from magnetar.lake.lake_values import FilesGoneError, LakeError, ListVersion, LogFiles, Synced, TableStatus
from magnetar.lake.listing import files_of_log
from magnetar.lake.process import At, LakeWorkers
from magnetar.managedlog.log_metadata import LogMetadata, decode, log_path
from magnetar.managedlog.orphans import log_paths
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.observability.metrics import Exposition
from magnetar.runtime.tasks import yield_loop
from magnetar.tiered.backoff import Backoff

_log = logging.getLogger("magnetar.lake")

_PER_TURN: Final = 50
"""Logs that are compared before the event loop gets a turn."""
_NAMED_MAX: Final = 20
"""Most objects that one error names."""
_TRIES: Final = 5
"""Most attempts to read a list that changes while its table is compared."""


class Figures:
    """Counters of changes of tables."""

    def __init__(self) -> None:
        self.commits = 0
        self.errors = 0
        self.files_added = 0
        self.files_removed = 0
        self.strangers = 0
        self.restored = 0
        self.gone: dict[str, int] = {}
        """By log: objects that its list names and that do not exist."""

    def count(self, synced: Synced) -> None:
        """Counts one change of a table."""
        self.commits += synced.outcome == "changed"
        self.files_added += synced.added
        self.files_removed += synced.removed
        self.strangers += len(synced.strangers)
        self.restored += synced.restored

    def collect(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        for name, text, value in (
            ("magnetar_lake_commits_total", "Snapshots written to Iceberg tables.", self.commits),
            ("magnetar_lake_files_added_total", "Files added to Iceberg tables.", self.files_added),
            ("magnetar_lake_files_removed_total", "Files removed from Iceberg tables.", self.files_removed),
            (
                "magnetar_lake_errors_total",
                "Failed attempts to bring an Iceberg table up to date.",
                self.errors,
            ),
            (
                "magnetar_lake_foreign_snapshots_total",
                "Snapshots that other programs wrote to Iceberg tables.",
                self.strangers,
            ),
            (
                "magnetar_lake_files_restored_total",
                "Files that other programs removed from Iceberg tables and that were put back.",
                self.restored,
            ),
        ):
            out.counter(name, text, value)
        out.gauge(
            "magnetar_lake_files_gone",
            "Objects that stored lists name and that are not in the store.",
            sum(self.gone.values()),
        )
        return ()


class CopyPlaces(Protocol):
    """The stores that have the files of tables."""

    async def check_owner(self) -> object:
        """Raises ReadOnlyStoreError when the store is another installation's: its tables are as well."""

    def place(self, url: str) -> str:
        """See `files_of_log`."""


class LakeTables:
    """The tables of one broker's topics."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        workers: LakeWorkers,
        clock: Clock,
        spawn: Callable[[Coroutine[object, object, None]], None],
        used: bool,
        places: CopyPlaces | None = None,
        trust: MetadataTrust | None = None,
    ) -> None:
        """`spawn` runs background work. `used`: whether the catalog may have tables already. `places`: None
        when files are at the URLs in their lists and no owner is checked. `trust`: whether the metadata names
        all objects."""
        self.figures = Figures()
        self._used = used
        self._places = places
        self._place: Callable[[str], str] = (lambda url: url) if places is None else places.place
        self._trust = trust or MetadataTrust()
        self._workers = workers
        self.jobs = Jobs(spawn)
        """The requested checks and upkeep."""
        self._store = store
        self._clock = clock
        self._spawn = spawn
        self._waiting: dict[str, None] = {}
        self._retired: dict[str, frozenset[UUID]] = {}
        self._failed: dict[str, tuple[Backoff, str]] = {}
        self._following = False

    # ------------------------------------------------------------ following the lists

    def changed(self, log_name: str) -> None:
        """Updates the table of a log in the background, after the log's list was changed or deleted."""
        self._waiting[log_name] = None
        if not self._following:
            self._following = True
            self._spawn(self._follow())

    async def _follow(self) -> None:
        try:
            while self._waiting:
                log_name = next(iter(self._waiting))
                del self._waiting[log_name]
                await self._try(log_name)
        finally:
            self._following = False

    async def _try(self, log_name: str) -> None:
        try:
            await self.sync(log_name)
        except MagnetarError as error:
            self.figures.errors += 1
            backoff = self._failed.get(log_name, (Backoff(), ""))[0]
            pause_ms = backoff.failed(self._clock.now_ms())
            self._failed[log_name] = (backoff, str(error))
            _log.log(
                logging.ERROR if isinstance(error, FilesGoneError) else logging.WARNING,
                "the table of log %s is not up to date, tried again in %d s: %s",
                log_name,
                pause_ms // 1000,
                error,
            )
        else:
            self._failed.pop(log_name, None)

    async def round(self) -> None:
        """Repeats failed updates, after growing pauses."""
        now_ms = self._clock.now_ms()
        for log_name, (backoff, _) in list(self._failed.items()):
            if not backoff.waits(now_ms):
                self.changed(log_name)

    @property
    def errors(self) -> dict[str, str]:
        """The error of each log whose table is not up to date."""
        return {log_name: error for log_name, (_, error) in self._failed.items()}

    async def sync(self, log_name: str) -> Synced:
        """Makes the table match the stored list. Raises LakeError, MetadataError."""
        for _ in range(_TRIES):
            wanted = await self._wanted(log_name)
            if wanted is None:
                await self._leave(log_name)
                return Synced("none", log_name)
            synced = await self._sync(wanted)
            if synced.outcome != "behind":
                self._check_gone(log_name, synced)
                return synced
            again = await self._wanted(log_name)
            if again is not None and again.version == wanted.version:
                # Its objects are about to be deleted, or another one follows this list too.
                return synced
        raise LakeError(f"the list of log {log_name} changes all the time")

    async def _sync(self, wanted: LogFiles) -> Synced:
        self._used = True
        await self._check_allowed()
        synced = Synced(**await self._workers.follow.call("sync", log=wanted.to_json()))
        self.figures.count(synced)
        if synced.outcome == "changed":
            _log.info("table %s: %d files added, %d removed", synced.table, synced.added, synced.removed)
        if synced.strangers:
            _log.warning(
                "table %s was changed by another program: %s; %d files that this removed are in it again",
                synced.table,
                ", ".join(synced.strangers),
                synced.restored,
            )
        return synced

    async def _check_allowed(self) -> None:
        if self._places is not None:
            await self._places.check_owner()

    def _check_gone(self, log_name: str, synced: Synced) -> None:
        """Raises FilesGoneError."""
        if not synced.gone:
            self.figures.gone.pop(log_name, None)
            return
        self.figures.gone[log_name] = len(synced.gone)
        more = len(synced.gone) - _NAMED_MAX
        raise FilesGoneError(
            f"{len(synced.gone)} objects that the stored list of log {log_name} names are gone, and the"
            f" messages in them cannot be read: {', '.join(synced.gone[:_NAMED_MAX])}"
            f"{f' and {more} more' if more > 0 else ''}; restore them from a backup or an earlier"
            " version of the store"
        )

    async def _wanted(self, log_name: str, retiring: frozenset[UUID] = frozenset()) -> LogFiles | None:
        path = log_path(log_name)
        value = await self._store.get(path)
        if value is None:
            self._retired.pop(log_name, None)
            return None
        metadata = decode(value.data, path)
        named = {ledger.offload.attempt for ledger in metadata.ledgers if ledger.offload is not None}
        if retired := self._retired.get(log_name, frozenset()) & named:
            self._retired[log_name] = retired
        else:
            self._retired.pop(log_name, None)
        return files_of_log(log_name, metadata, value.stat, without=retired | retiring, place=self._place)

    # ------------------------------------------------------------ before objects go

    async def retire(self, log_name: str, attempts: Collection[UUID]) -> None:
        """Removes the files of these attempts from all snapshots; call it before their objects are deleted.

        Raises LakeError, MetadataError: the objects must then stay.
        """
        # Remembered: the list may go on naming them, and a process that reads it meanwhile must not bring
        # them back.
        retiring = frozenset(attempts)
        self._retired[log_name] = self._retired.get(log_name, frozenset()) | retiring
        for _ in range(_TRIES):
            wanted = await self._wanted(log_name, retiring)
            if wanted is None or (await self._sync(wanted)).outcome != "behind":
                return
        raise LakeError(f"the list of log {log_name} changes all the time")

    # ------------------------------------------------------------ logs that are gone

    async def _leave(self, log_name: str) -> None:
        """Drops the table of a log that was deleted, when it is the last of its topic."""
        topic = TopicName.from_log_name(log_name)
        status = await self.status(topic)
        if status is None:
            return
        seen = status.versions.get(str(topic.partition))
        if await self.logs_of(topic.base):
            # Files left the table before their objects did; what it has all the same names nothing.
            if seen is not None:
                version = ListVersion.decode(seen)
                await self._sync(LogFiles(str(topic.base), topic.partition, version, ()))
            return
        await self._check_allowed()
        if await self._workers.follow.call("drop", topic=str(topic.base), versions=dict(status.versions)):
            _log.info("table %s is dropped: its topic was deleted", status.table)

    async def logs_of(self, topic: TopicName) -> list[str]:
        """Names of the existing logs of a topic or of its partitions. Raises MetadataError."""
        base = topic.base
        parent = log_path(base.log_name).rpartition("/")[0]
        names = []
        for child in await self._store.children(parent):
            log_name = f"{base.tenant}/{base.namespace}/{base.domain}/{child}"
            if TopicName.from_log_name(log_name).base == base:
                names.append(log_name)
        return names

    # ------------------------------------------------------------ looking at all

    async def look(self) -> None:
        """Compares every table with its lists. Raises MetadataError, InvalidLogDataError, LakeError."""
        offloaded = False
        for number, path in enumerate(await log_paths(self._store)):
            if number % _PER_TURN == 0:
                await yield_loop()
            value = await self._store.get(path)
            if value is not None and _has_copies(decode(value.data, path)):
                offloaded = True
                self.changed(path.split("/", 2)[2])
        if not offloaded and not self._used:
            return
        for text in await self.tables():
            topic = TopicName.parse(text)
            status = await self.status(topic)
            if status is None:
                continue
            names = frozenset(await self.logs_of(topic))
            for log_name in (_log_of(topic, int(partition)) for partition in status.versions):
                if log_name not in names:
                    self.changed(log_name)

    # ------------------------------------------------------------ what is asked for

    async def status(self, topic: TopicName) -> TableStatus | None:
        """The state of a topic's table; None when there is none. Raises LakeError."""
        found = await self._workers.follow.call("status", topic=str(topic.base))
        return None if found is None else TableStatus(**found)

    async def lists(self, topic: TopicName) -> list[LogFiles]:
        """The files that the lists of a topic's partitions name. Raises MetadataError,
        InvalidLogDataError."""
        found = [await self._wanted(name) for name in await self.logs_of(topic)]
        return [files for files in found if files is not None]

    async def verify(self, topic: TopicName, at: At | None = None) -> dict[str, object]:
        """Compares table, lists and objects. Raises LakeError, MetadataError."""
        lists = await self.lists(topic)
        found: dict[str, object] = await self._workers.upkeep.call(
            "verify", at, topic=str(topic.base), logs=[files.to_json() for files in lists]
        )
        return found

    async def maintain(
        self, topic: TopicName, *, keep_ms: int, keep_min: int, dry_run: bool, at: At | None = None
    ) -> dict[str, object] | None:
        """Updates the table, expires its old snapshots and deletes unnamed metadata; None without a table.

        Raises LakeError, MetadataError.
        """
        if not dry_run:
            await self._check_allowed()
            if (doubt := self._trust.doubt) is not None:
                raise LakeError(f"nothing that no list names is deleted: {doubt}")
            for log_name in await self.logs_of(topic):
                await self.sync(log_name)
        found: dict[str, Any] | None = await self._workers.upkeep.call(
            "maintain",
            at,
            topic=str(topic.base),
            now_ms=self._clock.settled_ms(),
            keep_ms=keep_ms,
            keep_min=keep_min,
            dry_run=dry_run,
        )
        if found is not None and not dry_run:
            for path in found["deleted_metadata"]:
                _log.info("table %s: %s is named by no snapshot: it is deleted", found["table"], path)
        return found

    async def tables(self) -> Sequence[str]:
        """Topics that have a table. Raises LakeError."""
        found: list[str] = await self._workers.follow.call("topics")
        return found

    async def close(self) -> None:
        """Ends the workers."""
        await self._workers.follow.close()
        await self._workers.upkeep.close()


def _log_of(topic: TopicName, partition: int) -> str:
    return (topic if partition < 0 else topic.with_partition(partition)).log_name


def _has_copies(metadata: LogMetadata) -> bool:
    return any(
        ledger.offload is not None and ledger.offload.complete and not ledger.offload.foreign
        for ledger in metadata.ledgers
    )
