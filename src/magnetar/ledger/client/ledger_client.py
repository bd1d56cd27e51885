"""Creates, opens, recovers and deletes ledgers over several bookies."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerEnd, WriterListener
from magnetar.ledger.client import client_metrics
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.driving import CoreDriver
from magnetar.ledger.client.errors import LedgerUnauthorizedError
from magnetar.ledger.client.fresh_ids import is_used
from magnetar.ledger.client.handles import LedgerHandle as LedgerHandle
from magnetar.ledger.client.handles import digester_of, layout_of
from magnetar.ledger.client.ledger_options import LedgerOptions as LedgerOptions
from magnetar.ledger.client.writing import LedgerWriteHandle as LedgerWriteHandle
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.ledger.registry import StoredLedger
from magnetar.observability.metrics import Exposition
from magnetar.runtime.tasks import SingleFlight
from magnetar.wire.bookkeeper.digests import master_key

_log = logging.getLogger("magnetar.ledger.client")


class LedgerClient:
    """Ledgers of one cluster of bookies."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Final = cluster
        self._recovering = SingleFlight[LedgerEnd]()

    async def create(
        self,
        options: LedgerOptions,
        listener: WriterListener,
        *,
        custom: Mapping[str, bytes] | None = None,
        created_ms: int | None = None,
    ) -> LedgerWriteHandle:
        """Creates an open ledger. Raises NotEnoughBookiesError, MetadataError; ValueError for an option that
        the client's protocol version lacks."""
        if (options.deferred_sync or options.explicit_lac_s) and self.cluster.options.use_v2:
            raise ValueError("deferred sync and explicit last-add-confirmed need version 3 of the protocol")
        layout = options.layout
        ensemble = await self.cluster.new_ensemble(layout)
        metadata = LedgerMetadata(
            state=LedgerState.OPEN,
            end=None,
            ensembles=((0, ensemble),),
            write_quorum=layout.write_quorum,
            ack_quorum=layout.ack_quorum,
            created_ms=created_ms,
            custom=dict(custom or {}),
            password=options.password,
            digest=options.digest,
        )
        while True:
            stored = await self.cluster.ledgers.create(metadata)
            if not self.cluster.options.new_ids_asked or not await is_used(
                self.cluster.pool, stored.ledger_id, ensemble
            ):
                break
            _log.error(
                "bookies already have entries of ledger %d, so another id is used; metadata may be an older "
                "copy",
                stored.ledger_id,
            )
            await self.cluster.ledgers.delete(stored.ledger_id, expected_version=stored.version)
        return LedgerWriteHandle(self.cluster, stored, options, listener)

    async def open(self, ledger_id: LedgerId, password: bytes = b"", *, recover: bool = True) -> LedgerHandle:
        """Opens a reader.

        With `recover` an open ledger is fenced and closed first: its writer cannot write it any more.
        Without, it is read up to the last confirmed entry. Raises NoSuchLedgerError, LedgerUnreadableError,
        LedgerUnauthorizedError, NotEnoughBookiesError, MetadataError.
        """
        stored = await self.cluster.ledgers.read(ledger_id)
        # The oldest metadata holds no password: with it the bookies compare keys.
        if stored.metadata.digest is not None and stored.metadata.password != password:
            raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password")
        if stored.metadata.end is not None:
            return LedgerHandle(self.cluster, stored, password, stored.metadata.end)
        if recover:
            # In version 2 the answers to one of two recoveries could be taken for those to the other.
            end = await self._recovering.run(ledger_id, lambda: self._recover(stored, password))
            stored = await self.cluster.ledgers.read(ledger_id)
            return LedgerHandle(self.cluster, stored, password, end)
        handle = LedgerHandle(self.cluster, stored, password, LedgerEnd(-1, 0))
        await handle.read_last_confirmed()
        return handle

    async def _recover(self, stored: StoredLedger, password: bytes) -> LedgerEnd:
        metadata = stored.metadata
        digester = digester_of(stored, password)
        core = LedgerRecovery(stored.ledger_id, metadata, stored.version, digester)
        driver = CoreDriver(self.cluster, core, layout_of(metadata), master_key(password))
        self.cluster.pool.metrics.recoveries += 1
        driver.do(core.start())
        return await driver.end()

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """Adds this client's counters to a scrape."""
        return client_metrics.collect(self.cluster.pool, out)

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes the ledger; bookies learn of it later and free the space. Not an error when there is
        none."""
        await self.cluster.ledgers.delete(ledger_id)

    async def close(self) -> None:
        """Closes all connections. Writers that were not closed fail."""
        await self.cluster.close()
