"""Shows the part of a store below one path as a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from magnetar.metadata import paths
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    BadVersionError,
    HasChildrenError,
    MetadataStore,
    NotFoundError,
    Notification,
    Operation,
    SessionEvent,
    Stat,
    Value,
)


class ScopedMetadataStore:
    """A `MetadataStore` whose root is a path of another store, which is closed with it.

    Values outside the path are neither seen nor touched, so independent programs can share a service.
    """

    def __init__(
        self, store: MetadataStore, scope: str, *, beside: frozenset[str] = frozenset(), home: str = ""
    ) -> None:
        """`scope`: the path that is the root here, not "/" itself. `beside`: paths of one name which, with
        all that is below them, lie below `home` in the other store, shared with its other users; `home`: a
        path, or "" for the root. They are not listed among the children of the root here."""
        paths.split(scope)
        self._store = store
        self._scope = scope
        self._beside = beside
        self._home = home

    def _is_beside(self, path: str) -> bool:
        return bool(self._beside) and path[: path.find("/", 1) if "/" in path[1:] else None] in self._beside

    def _outer(self, path: str) -> str:
        """The path of a value in the other store."""
        paths.split(path)
        return (self._home if self._is_beside(path) else self._scope) + path

    def _outer_parent(self, path: str) -> str:
        paths.check(path)
        if self._is_beside(path):
            return self._home + path
        return self._scope if path == paths.ROOT else self._scope + path

    def _inner(self, path: str) -> str:
        if paths.covers(self._scope, path):
            return path.removeprefix(self._scope) or paths.ROOT
        return path.removeprefix(self._home)

    def _stat(self, stat: Stat) -> Stat:
        return stat._replace(path=self._inner(stat.path))

    def _told(self, error: BadVersionError | NotFoundError | HasChildrenError) -> Exception:
        path = self._inner(error.path)
        if isinstance(error, BadVersionError):
            return BadVersionError(path, error.expected, error.actual)
        return type(error)(path)

    async def get(self, path: str) -> Value | None:
        value = await self._store.get(self._outer(path))
        return None if value is None else Value(value.data, self._stat(value.stat))

    async def children(self, path: str) -> list[str]:
        return await self._store.children(self._outer_parent(path))

    async def exists(self, path: str) -> bool:
        return await self._store.exists(self._outer(path))

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        try:
            return self._stat(
                await self._store.put(
                    self._outer(path),
                    data,
                    expected_version=expected_version,
                    ephemeral=ephemeral,
                    sequential=sequential,
                )
            )
        except BadVersionError as error:
            raise self._told(error) from error

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        try:
            await self._store.delete(
                self._outer(path), expected_version=expected_version, expected_creation=expected_creation
            )
        except (BadVersionError, NotFoundError, HasChildrenError) as error:
            raise self._told(error) from error

    async def delete_recursive(self, path: str) -> None:
        await self._store.delete_recursive(self._outer_parent(path))

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        moved = [replace(operation, path=self._outer(operation.path)) for operation in operations]
        try:
            stats = await self._store.transact(moved)
        except (BadVersionError, NotFoundError, HasChildrenError) as error:
            raise self._told(error) from error
        return [None if stat is None else self._stat(stat) for stat in stats]

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        def told(notification: Notification) -> None:
            path = self._inner(notification.path)
            if paths.covers(self._scope, notification.path) or self._is_beside(path):
                callback(Notification(notification.change, path))

        return self._store.watch(self._outer_parent(prefix), told)

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._store.watch_session(callback)

    async def sync(self) -> None:
        await self._store.sync()

    async def close(self) -> None:
        await self._store.close()
