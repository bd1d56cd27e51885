"""The writer of one ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.base.errors import LedgerError
from magnetar.ledger.api import LedgerEnd, WriterListener
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.driving import CoreDriver
from magnetar.ledger.client.explicit_lac import ExplicitLac
from magnetar.ledger.client.handles import LedgerHandle, digester_of, layout_of
from magnetar.ledger.client.ledger_options import LedgerOptions
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.deferred import DeferredWriter
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.ledger.registry import StoredLedger
from magnetar.runtime.tasks import call_later
from magnetar.wire.bookkeeper.digests import master_key


class LedgerWriteHandle(LedgerHandle):
    """The writer of a ledger. Also reads the confirmed entries."""

    def __init__(
        self, cluster: Cluster, stored: StoredLedger, options: LedgerOptions, listener: WriterListener
    ) -> None:
        metadata, password = stored.metadata, options.password
        digester = digester_of(stored, password)
        at = stored.ledger_id, metadata, stored.version, digester
        self._deferred = DeferredWriter(*at) if options.deferred_sync else None
        self._core = self._deferred or QuorumWriter(*at, delay_change=options.delay_ensemble_change)
        self._listener = listener
        self._explicit: ExplicitLac | None = None
        if options.explicit_lac_s:
            self._explicit = ExplicitLac(
                cluster.pool, self._core, digester, master_key(password), after_s=options.explicit_lac_s
            )
        self._within_s = options.acknowledged_within_s
        self._watching: asyncio.TimerHandle | None = None
        self._forces: list[tuple[int, asyncio.Future[None]]] = []
        super().__init__(cluster, stored, password, LedgerEnd(-1, 0))
        self._driver = CoreDriver(
            cluster,
            self._core,
            layout_of(metadata),
            master_key(password),
            advanced=listener.durable if self._is_plain else self._advanced,
            failed=listener.failed if self._is_plain else self._failed,
            deferred_sync=options.deferred_sync,
        )

    @property
    def _is_plain(self) -> bool:
        return self._deferred is None and self._explicit is None

    def _advanced(self, last_entry: int) -> None:
        if self._explicit is not None:
            self._explicit.advanced()
        self._listener.durable(last_entry)
        while self._forces and self._forces[0][0] <= last_entry:
            _, forced = self._forces.pop(0)
            if not forced.done():
                forced.set_result(None)

    def _failed(self, error: LedgerError) -> None:
        if self._explicit is not None:
            self._explicit.close()
        forces, self._forces = self._forces, []
        for _, forced in forces:
            if not forced.done():
                forced.set_exception(error)
        self._listener.failed(error)

    @property
    def metadata(self) -> LedgerMetadata:
        return self._core.metadata

    @property
    def last_entry(self) -> int:
        return self._core.last_confirmed

    @property
    def length_bytes(self) -> int:
        return self._core.confirmed_bytes

    @property
    def ensemble(self) -> Sequence[str]:
        """The current bookies."""
        return self._core.ensemble

    @property
    def last_pushed(self) -> int:
        """Last appended entry; -1 when there is none."""
        return self._core.last_pushed

    @property
    def pending_bytes(self) -> int:
        """Payload bytes of appended entries that are not confirmed."""
        return self._core.pending_bytes

    def append(self, payloads: Sequence[bytes]) -> int:
        """Appends entries and returns the id of the first; never waits.

        Costs a digest and a copy of each. Raises LedgerClosedError, or the error that ended the writer.
        """
        if self._driver.error is not None:
            raise self._driver.error
        first = self._core.last_pushed + 1
        self._driver.do(self._core.append(payloads))
        if self._within_s and self._watching is None:
            self._watch()
        return first

    def _watch(self) -> None:
        """Checks after a while whether the entries appended by now are acknowledged."""
        last = self.last_pushed

        def look() -> None:
            self._watching = None
            if self.last_acknowledged < last:
                late = f"entry {last} of ledger {self.ledger_id} was not acknowledged in {self._within_s} s"
                self._driver.do(self._core.give_up(late))
            elif self.last_acknowledged < self.last_pushed and not self._core.is_over:
                self._watch()

        self._watching = call_later(self._within_s, look)

    @property
    def last_acknowledged(self) -> int:
        """The last entry that enough bookies have, with all before it; -1 when there is none.

        With deferred sync it may not be durable yet; otherwise it is `last_entry`.
        """
        return self._core.last_confirmed if self._deferred is None else self._deferred.last_acknowledged

    async def force(self) -> int:
        """Waits until all entries appended before are durable and confirmed; returns `last_entry`.

        With deferred sync only this and `close` confirm entries. Raises LedgerError.
        """
        if self._driver.error is not None:
            raise self._driver.error
        last = self.last_pushed
        if self._deferred is not None and last > self.last_entry:
            forced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._forces.append((last, forced))
            self._driver.do(self._deferred.force())
            await forced
        return self.last_entry

    async def close(self) -> LedgerEnd:
        """Waits until all is confirmed, and closes the ledger. May be called twice. Raises LedgerError."""
        if self._explicit is not None:
            self._explicit.close()
        self._driver.do(self._core.close())
        return await self._driver.end()
