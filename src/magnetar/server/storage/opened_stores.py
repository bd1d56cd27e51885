"""The stores of messages and metadata of a process, as `message_stores.py` opens them."""

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
from magnetar.server.storage.datafolder import FolderPaths

if TYPE_CHECKING:
    from magnetar.metadata.bookkeeper.registry import ListBookies
    from magnetar.server.security.watched_files import CredentialFiles

Ends: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]
"""Returns the segments in use, as paths in the data folder, and the byte up to which each is durable. All
ends are of one moment: no message after an end was confirmed before a message before an end."""


class Kept(Protocol):
    """The messages in a data folder, for backups."""

    def held(self) -> AbstractAsyncContextManager[Ends]:
        """A block in which no ledger is deleted. Raises MagnetarError when this is not possible now."""
        ...


class KeptHere:
    """The messages that this process stores."""

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
    """The stores under the managed logs."""

    metadata: MetadataStore
    ledgers: Ledgers
    listing: Listing | None
    """Lists all ledgers, so that unnamed ones can be deleted; None when some may belong to other programs."""
    syncer: Syncer
    """Syncs messages to this process's own disk."""
    bookies: ListBookies | None = None
    """Lists the bookies with the messages; None: this process stores them."""
    collectors: tuple[Collector, ...] = ()
    """Metrics of the stores."""
    trust: MetadataTrust = field(default_factory=MetadataTrust)
    """Whether objects that metadata does not name may be deleted."""
    beside: FolderPaths | None = None
    """The data folder that another process of this machine holds, which has the messages; None: there is
    none."""
    kept: Kept | None = None
    """The messages for backups of the data folder; None: they are not stored there."""
    adopted: bool = False
    """Whether Apache Pulsar's brokers made the cluster, and may serve it again."""
    credentials: CredentialFiles | None = None
    """Files of credentials for bookies, which may change; None: there are none."""
