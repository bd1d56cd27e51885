"""Who makes names and who ends them: tenants, namespaces, topics, partitioned topics.

A name is made in several steps: is there one, may there be one, write it. Somebody else who does the same in
between, for another kind of thing of that name or for what it lies in, would leave a topic below a deleted
namespace, a partition of a deleted topic, or a topic and a partitioned topic of one name. So who makes a name
holds it (`making`), and who ends one keeps all below it from being made (`ending`).

Paths are `tenant/namespace/domain/topic`, and what they begin with.

Rule: who holds a name waits for storage, never for another name or for a flight of `registry.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import PreconditionFailedError, ServiceNotReadyError
from magnetar.runtime.turns import Turns


def topic_path(name: TopicName) -> str:
    """Of a topic with all of its partitions."""
    return f"{name.tenant}/{name.namespace}/{name.domain}/{name.base.local}"


def _and_parents(path: str) -> Iterator[str]:
    """A path, and all that it lies in. A topic's own name may have slashes: its part is one."""
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
        """Nobody else makes or ends the name meanwhile.

        Raises ServiceNotReadyError while it, or what it lies in, is being deleted.
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
                # Behind those who began before; who comes later sees that it ends.
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
        """So many topics are made in the block. Raises PreconditionFailedError when they would be too many.

        Taken before a name is held, never by who holds one.
        """
        async with self._turns.hold((namespace,) if await self._most_of(namespace) else ()):
            # As it is now: whoever waited may meet another limit.
            most = await self._most_of(namespace)
            if most and await self._count_of(namespace) + more > most:
                raise PreconditionFailedError(
                    f"namespace {namespace} may have {most} topics, partitions counted"
                )
            yield
