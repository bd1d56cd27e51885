"""Serialises creations and deletions of names: tenants, namespaces, topics, partitioned topics.

A creation has several steps: does the name exist, may it, write it. A concurrent creation or deletion of the
same name, or of its parent, could leave a topic below a deleted namespace, a partition of a deleted topic, or
a topic and a partitioned topic of one name. So a creation holds its name (`making`), and a deletion keeps
everything below its name from being created (`ending`).

Paths are `tenant/namespace/domain/topic`, and their prefixes.

Rule: a holder of a name waits for storage, never for another name or for a flight of `registry.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import PreconditionFailedError, ServiceNotReadyError
from magnetar.runtime.turns import Turns


def topic_path(name: TopicName) -> str:
    """The path of a topic with all of its partitions."""
    return f"{name.tenant}/{name.namespace}/{name.domain}/{name.base.local}"


def _and_parents(path: str) -> Iterator[str]:
    """A path and all its parents. A topic's own name may have slashes: it is one part."""
    parts = path.split("/", 3)
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


class Names:
    """Names of one broker that are being made or ended."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._making: dict[str, int] = {}
        self._ending: dict[str, int] = {}

    @asynccontextmanager
    async def making(self, path: str) -> AsyncIterator[None]:
        """Keeps all others from creating or deleting the name during the block.

        Raises ServiceNotReadyError while it, or a parent, is being deleted.
        """
        self._making[path] = self._making.get(path, 0) + 1
        try:
            async with self._turns.hold((path,)):
                for known in _and_parents(path):
                    if known in self._ending:
                        raise ServiceNotReadyError(f"{known} is being deleted; try again when it is gone")
                yield
        finally:
            self._making[path] -= 1
            if not self._making[path]:
                del self._making[path]

    @asynccontextmanager
    async def ending(self, path: str) -> AsyncIterator[None]:
        """Nothing at or below the path is made meanwhile; what was being made is there by then."""
        self._ending[path] = self._ending.get(path, 0) + 1
        try:
            below = [known for known in self._making if known == path or known.startswith(f"{path}/")]
            for known in below:
                # After those that began before; later ones see that the name is being deleted.
                async with self._turns.hold((known,)):
                    pass
            yield
        finally:
            self._ending[path] -= 1
            if not self._ending[path]:
                del self._ending[path]


class TopicQuota:
    """Keeps a namespace from having more topics than it may: where there is a limit, they are made one after
    the other. Many that were made at once would all find the last place free."""

    def __init__(
        self,
        most_of: Callable[[NamespaceName], Awaitable[int]],
        count_of: Callable[[NamespaceName], Awaitable[int]],
    ) -> None:
        """`most_of`: the limit of a namespace, 0 for none; `count_of`: its topics, partitions counted."""
        self._most_of = most_of
        self._count_of = count_of
        self._turns = Turns()

    @asynccontextmanager
    async def take(self, namespace: NamespaceName, more: int = 1) -> AsyncIterator[None]:
        """Reserves places for topics that the block creates. Raises PreconditionFailedError beyond the limit.

        To be taken before a name is held, never while holding one.
        """
        async with self._turns.hold((namespace,) if await self._most_of(namespace) else ()):
            # The limit may have changed during the wait.
            most = await self._most_of(namespace)
            if most and await self._count_of(namespace) + more > most:
                raise PreconditionFailedError(
                    f"namespace {namespace} may have {most} topics, partitions counted"
                )
            yield
