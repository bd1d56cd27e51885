"""A metadata store in memory that can fail and be copied as a crash would leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from magnetar.base.errors import MetadataError
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    BadVersionError,
    Delete,
    NotFoundError,
    Notification,
    Operation,
    Put,
    SessionEvent,
    Stat,
    Value,
)


class FakeMetadataStore:
    """Versioned values by path. Each write is durable when its call returns."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.put_errors: list[MetadataError] = []
        """Raised by the next puts, first one first; nothing is stored then."""
        self.put_gate: asyncio.Event | None = None
        """Puts wait for it when set."""
        self.puts: list[str] = []
        self._dead = False

    async def get(self, path: str) -> Value | None:
        await asyncio.sleep(0)
        return self.values.get(path)

    async def children(self, path: str) -> list[str]:
        await asyncio.sleep(0)
        prefix = f"{path}/"
        return sorted({key[len(prefix) :].split("/")[0] for key in self.values if key.startswith(prefix)})

    async def exists(self, path: str) -> bool:
        await asyncio.sleep(0)
        return path in self.values

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        assert not sequential
        assert not ephemeral
        await asyncio.sleep(0)
        if self.put_gate is not None:
            await self.put_gate.wait()
        if self._dead:
            raise MetadataError("the process is dead")
        if self.put_errors:
            raise self.put_errors.pop(0)
        known = self.values.get(path)
        actual = -1 if known is None else known.stat.version
        if expected_version is not None and actual != expected_version:
            raise BadVersionError(path, expected_version, actual)
        return self._store(path, data)

    def _store(self, path: str, data: bytes) -> Stat:
        known = self.values.get(path)
        version = 0 if known is None else known.stat.version + 1
        stat = Stat(path, version, 0, 0, ephemeral=False, created_by_self=True)
        self.values[path] = Value(data, stat)
        self.puts.append(path)
        return stat

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        await asyncio.sleep(0)
        known = self.values.get(path)
        if known is None:
            raise NotFoundError(path)
        if expected_version is not None and known.stat.version != expected_version:
            raise BadVersionError(path, expected_version, known.stat.version)
        del self.values[path]

    async def delete_recursive(self, path: str) -> None:
        await asyncio.sleep(0)
        for key in [key for key in self.values if key == path or key.startswith(f"{path}/")]:
            del self.values[key]

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Takes effect as a whole; no two operations may name the same path."""
        await asyncio.sleep(0)
        if self.put_gate is not None:
            await self.put_gate.wait()
        if self._dead:
            raise MetadataError("the process is dead")
        if self.put_errors:
            raise self.put_errors.pop(0)
        for each in operations:
            known = self.values.get(each.path)
            if isinstance(each, Delete) and known is None:
                raise NotFoundError(each.path)
            actual = -1 if known is None else known.stat.version
            if each.expected_version is not None and actual != each.expected_version:
                raise BadVersionError(each.path, each.expected_version, actual)
        return [self._done(each) for each in operations]

    def _done(self, operation: Operation) -> Stat | None:
        match operation:
            case Put(path, data):
                return self._store(path, data)
            case Delete(path):
                del self.values[path]
        return None

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        raise NotImplementedError

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Never calls: the session lasts as long as the store."""
        return lambda: None

    async def sync(self) -> None:
        """Does nothing: the only writer's reads see its newest values."""

    async def close(self) -> None:
        self._dead = True

    def crash(self) -> FakeMetadataStore:
        """What the next process finds."""
        self._dead = True
        after = FakeMetadataStore()
        after.values = dict(self.values)
        return after
