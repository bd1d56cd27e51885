"""Whether a shared metadata service can be reached, and reads that do not wait for one that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from magnetar.metadata.store import MetadataStore, SessionEvent, StoreUnreachableError

_T = TypeVar("_T")

PATIENCE_S: Final = 2.0
"""Seconds without contact after which `Contact.read` gives up: longer than most elections of a leader. The
store itself waits 30 s, after which clients have given up."""


class Contact:
    """The contact of one store with its service. Made on the event loop."""

    def __init__(self, store: MetadataStore) -> None:
        self.outages = 0
        """How many there were."""
        self._lost_s: float | None = None
        """When contact was lost, in the loop's time; None: it is there."""
        self._limits: set[asyncio.Timeout] = set()
        self._cancel = store.watch_session(self._changed)

    @property
    def away(self) -> bool:
        """Whether the service cannot be reached."""
        return self._lost_s is not None

    def _changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTION_LOST:
            if self._lost_s is None:
                self.outages += 1
                self._lost_s = asyncio.get_running_loop().time()
        elif event is not SessionEvent.SESSION_LOST:
            # The service tells that the session is lost when it is there again; the next event says so too.
            self._lost_s = None
        for limit in self._limits:
            limit.reschedule(self._until_s())

    def _until_s(self) -> float | None:
        return None if self._lost_s is None else self._lost_s + PATIENCE_S

    async def read(self, work: Awaitable[_T]) -> _T:
        """The result of `work`, which reads from the store.

        Raises StoreUnreachableError when it is not there and contact has been lost for PATIENCE_S; `work` is
        cancelled then.
        """
        limit = asyncio.timeout_at(self._until_s())
        try:
            async with limit:
                self._limits.add(limit)
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StoreUnreachableError("the metadata service cannot be reached now; try again") from error
        finally:
            self._limits.discard(limit)

    def close(self) -> None:
        """Stops listening."""
        self._cancel()
