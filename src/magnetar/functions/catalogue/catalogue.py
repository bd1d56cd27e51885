"""The functions that there shall be, one record each in the metadata store.

Order of a change: the file first, then the record that names it, then the removal of the file that no record
names any more. Each record is changed by compare-and-set, so several callers and brokers may change it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue.instance_bounds import DEFAULT_BOUNDS, InstanceBounds
from magnetar.functions.catalogue.package_files import PackageFiles
from magnetar.functions.catalogue.records import FunctionRecord
from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.ports import StoredFunction
from magnetar.functions.refusals import (
    FunctionExistsError,
    FunctionNotFoundError,
    FunctionsFullError,
    UnchangedFunctionError,
)
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    Notification,
    SessionEvent,
    Value,
    delete_as_read,
)

_log = logging.getLogger("magnetar.functions")

FUNCTIONS_MAX: Final = 1_000
"""Most functions of a namespace."""

Change = Callable[[FunctionRecord], FunctionRecord]
"""Makes the record after a change; may be called again when another caller was faster."""


class Catalogue:
    """The functions. `close` in the end."""

    def __init__(
        self,
        store: MetadataStore,
        files: PackageFiles,
        clock: Clock,
        bounds: InstanceBounds = DEFAULT_BOUNDS,
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._counting = asyncio.Lock()
        """Held from a count of instances until what was counted is stored."""
        self._files = files
        self._clock = clock
        self._news = asyncio.Event()
        self._damaged: set[str] = set()
        """Keys of records that the log has already named."""
        self._cancels = [
            store.watch(keys.FUNCTIONS, self._noticed),
            store.watch_session(self._session_changed),
        ]

    def close(self) -> None:
        """Stops watching."""
        for cancel in self._cancels:
            cancel()

    def _noticed(self, change: Notification) -> None:
        self._news.set()

    def _session_changed(self, event: SessionEvent) -> None:
        # Without a connection changes by others may have gone unnoticed.
        self._news.set()

    async def changed(self) -> None:
        """See `FunctionCatalogue`."""
        await self._news.wait()
        self._news.clear()

    # -- reading

    async def functions(self) -> list[StoredFunction]:
        """See `FunctionCatalogue`. One whose record cannot be read is left out, with a line in the log."""
        found = []
        for path in await self.paths():
            value = await self._store.get(path)
            if value is None:
                continue  # Deleted meanwhile.
            try:
                record = FunctionRecord.decode(path, value.data)
            except DamagedDocumentError as error:
                if path not in self._damaged:
                    self._damaged.add(path)
                    _log.error("a function is not run: %s", error)
                continue
            self._damaged.discard(path)
            found.append(self.stored(record))
        return found

    async def paths(self) -> list[str]:
        """Keys of all records."""
        return [
            f"{keys.FUNCTIONS}/{tenant}/{namespace}/{name}"
            for tenant in await self._store.children(keys.FUNCTIONS)
            for namespace in await self._store.children(f"{keys.FUNCTIONS}/{tenant}")
            for name in await self._store.children(f"{keys.FUNCTIONS}/{tenant}/{namespace}")
        ]

    def stored(self, record: FunctionRecord) -> StoredFunction:
        """A function as the workers get it."""
        config = record.config
        return StoredFunction(
            tenant=config.tenant,
            namespace=config.namespace,
            name=config.name,
            version=record.version,
            config=config,
            package=None if record.package is None else self._files.path(record.package),
            stopped=record.stopped,
            owner=record.owner,
        )

    async def names(self, namespace: NamespaceName) -> list[str]:
        """Names of the functions of a namespace, sorted."""
        found = await self._store.children(keys.functions(namespace))
        return sorted(keys.decode_child(name) for name in found)

    async def find(self, namespace: NamespaceName, name: str) -> FunctionRecord | None:
        """The record of a function. Raises DamagedDocumentError."""
        path = keys.function(namespace, name)
        value = await self._store.get(path)
        return None if value is None else FunctionRecord.decode(path, value.data)

    async def get(self, namespace: NamespaceName, name: str) -> FunctionRecord:
        """The record of a function. Raises FunctionNotFoundError, DamagedDocumentError."""
        found = await self.find(namespace, name)
        if found is None:
            raise missing(namespace, name)
        return found

    # -- changing

    async def create(self, namespace: NamespaceName, record: FunctionRecord) -> None:
        """Adds a function; durable on return. Raises FunctionExistsError, FunctionsFullError."""
        name = record.config.name
        if len(await self._store.children(keys.functions(namespace))) >= FUNCTIONS_MAX:
            raise FunctionsFullError(
                f"namespace {namespace} has {FUNCTIONS_MAX} functions, as many as it may have",
                remedy="delete functions, or use another namespace",
            )
        async with self._counting:
            self._bounds.check(record.config, await self._others(namespace, name))
            await self._put(namespace, record)

    async def _others(self, namespace: NamespaceName, name: str) -> list[FunctionConfig]:
        """The configurations of all other functions."""
        mine = (namespace.tenant, namespace.namespace, name)
        stored = [each.config for each in await self.functions()]
        return [each for each in stored if (each.tenant, each.namespace, each.name) != mine]

    async def _put(self, namespace: NamespaceName, record: FunctionRecord) -> None:
        name, now_ms = record.config.name, self._clock.now_ms()
        # Larger than the version of a deleted function of this name: no worker takes one for the other.
        made = replace(record, version=now_ms, created_ms=now_ms, updated_ms=now_ms)
        try:
            await self._store.put(
                keys.function(namespace, name), made.encode(), expected_version=MUST_NOT_EXIST
            )
        except BadVersionError as error:
            raise FunctionExistsError(
                f"Function {name} already exists", remedy="update it, or delete it first"
            ) from error

    async def update(self, namespace: NamespaceName, name: str, change: Change) -> FunctionRecord:
        """Changes a function's configuration or package; the record before. Durable on return.

        Raises FunctionNotFoundError, DamagedDocumentError, FunctionsFullError, and what `change` raises.
        """
        async with self._counting:
            return await self._update(namespace, name, change, await self._others(namespace, name))

    async def _update(
        self, namespace: NamespaceName, name: str, change: Change, others: list[FunctionConfig]
    ) -> FunctionRecord:
        def changed(record: FunctionRecord) -> FunctionRecord:
            now_ms = self._clock.now_ms()
            made = change(record)
            if made.config.parallelism > record.config.parallelism:
                self._bounds.check(made.config, others)
            stopped = frozenset(each for each in made.stopped if each < made.config.parallelism)
            version = max(record.version + 1, now_ms)
            return replace(made, version=version, updated_ms=now_ms, stopped=stopped)

        return await self._change(namespace, name, changed)

    async def set_running(
        self, namespace: NamespaceName, name: str, instance: int | None, *, to: bool
    ) -> None:
        """Starts or stops one instance, or all of them. Raises FunctionNotFoundError, DamagedDocumentError,
        UnchangedFunctionError when it is so already or there is no such instance."""

        def changed(record: FunctionRecord) -> FunctionRecord:
            every = frozenset(range(record.config.parallelism))
            meant = every if instance is None else every & {instance}
            stopped = record.stopped - meant if to else record.stopped | meant
            if stopped == record.stopped:
                said = "started" if to else "stopped"
                what = f"function {name}" if instance is None else f"instance {instance} of function {name}"
                raise UnchangedFunctionError(
                    "Operation not permitted", remedy=f"{what} is {said} already, or is not there"
                )
            return replace(record, stopped=stopped)

        await self._change(namespace, name, changed)

    async def _change(self, namespace: NamespaceName, name: str, change: Change) -> FunctionRecord:
        path = keys.function(namespace, name)
        while (value := await self._store.get(path)) is not None:
            before = FunctionRecord.decode(path, value.data)
            data = change(before).encode()
            try:
                await self._store.put(path, data, expected_version=value.stat.version)
            except BadVersionError:
                continue  # Another caller was faster: its change is changed.
            return before
        raise missing(namespace, name)

    async def delete(self, namespace: NamespaceName, name: str) -> None:
        """Removes a function and its package. Raises FunctionNotFoundError.

        One whose record is damaged can be deleted too; what was its package is then removed at a later start.
        """
        path = keys.function(namespace, name)
        while (value := await self._store.get(path)) is not None:
            try:
                await delete_as_read(self._store, path, value.stat)
            except NotFoundError:
                break  # Another caller has deleted it: there is none, as is said below.
            except BadVersionError:
                continue  # As above.
            await self._remove_file(path, value)
            return
        raise missing(namespace, name)

    async def _remove_file(self, path: str, value: Value) -> None:
        try:
            package = FunctionRecord.decode(path, value.data).package
        except DamagedDocumentError:
            return  # Which file it was is not known: a later start finds it without a record.
        if package is not None:
            await self._files.remove(package)


def missing(namespace: NamespaceName, name: str) -> FunctionNotFoundError:
    """The refusal of a name that there is not."""
    return FunctionNotFoundError(f"Function {name} doesn't exist", remedy=f"there is none in {namespace}")
