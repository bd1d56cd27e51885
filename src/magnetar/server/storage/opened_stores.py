"""What `message_stores.py` opens: where a process keeps messages and metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from magnetar.bookie.segment_store import SegmentStore
from magnetar.ledger.api import Ledgers
from magnetar.managedlog.orphans import Listing
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.observability.metrics import Collector
from magnetar.runtime.syncer import Syncer

if TYPE_CHECKING:
    from magnetar.metadata.bookkeeper.registry import ListBookies

Ends: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]
"""Asks for the segments that are written to, as paths in the data folder, and the byte up to which each is
durable. All ends are of one moment: no message in front of them was confirmed by one behind them."""


class Kept(Protocol):
    """The messages in a data folder, for who takes a point in time of it."""

    def held(self) -> AbstractAsyncContextManager[Ends]:
        """No ledger is deleted in this block. Raises MagnetarError: it cannot be done now."""
        ...


class KeptHere:
    """Messages that this process keeps."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Ends]:
        """See `Kept`."""

        async def ends() -> Mapping[str, int]:
            name, end = self._store.supply.durable_end
            return {f"bookie/segments/{name}": end}

        with self._store.still.hold():
            yield ends


@dataclass(frozen=True, slots=True)
class MessageStores:
    """What the managed logs are put on."""

    metadata: MetadataStore
    ledgers: Ledgers
    listing: Listing | None
    """All ledgers, if none belongs to another program: unnamed ones may be deleted."""
    syncer: Syncer
    """What syncs messages to this process's own disk."""
    bookies: ListBookies | None = None
    """Names those that hold the messages; None: this process does."""
    collectors: tuple[Collector, ...] = ()
    """Metrics of the stores."""
    trust: MetadataTrust = field(default_factory=MetadataTrust)
    """Asked before anything is deleted because metadata does not name it."""
    kept: Kept | None = None
    """What a backup of the data folder asks; None: the messages do not lie there."""
