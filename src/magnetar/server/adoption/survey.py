"""Reads the metadata of a Pulsar cluster and tells what is not understood; changes nothing."""

from __future__ import annotations

import re
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.base.names import InvalidNameError, decode_local
from magnetar.broker.ownership.listing import pulsar_brokers
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, decode_info
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log_metadata import LogMetadata, decode
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError, object_of
from magnetar.metadata.store import MetadataStore
from magnetar.schemas.pulsar_storage import decode_locator
from magnetar.server.adoption.findings import AdoptionFindings, policies_without_effect

_MIGRATION: Final = "/pulsar/migration-coordinator/migration"
_READ_ONLY: Final = "/admin/flags/policies-readonly"
_TRANSACTIONS: Final = re.compile(r"__transaction_log_\d+|.*__transaction_pending_ack")
_SNAPSHOTS: Final = re.compile(r"__transaction_buffer_snapshot.*")
_REPLICATOR: Final = "pulsar.repl."
_NOT_READ: Final = {
    "/resourcegroups": "resource groups are read from /admin/resourcegroups here: set them again",
    "/service_unit_state": "owners in the form of the extensible load manager are not read, and not needed",
    "/loadbalance/extension": "the extensible load manager's state is not read, and not needed",
}


class Survey:
    """Looks at one cluster once."""

    def __init__(
        self,
        service: MetadataStore,
        store: MetadataStore,
        ledgers: TreeLedgerRegistry,
        cluster: str,
        home: str,
    ) -> None:
        """`store`: Pulsar's metadata, as brokers of ours would see it; `home`: see `Adoption`."""
        self._service = service
        self._store = store
        self._ledgers = ledgers
        self._cluster = cluster
        self._home = home
        self.found = AdoptionFindings()

    async def run(self) -> AdoptionFindings:
        """All that is found. Raises MetadataError."""
        await self._look_at_cluster()
        for tenant in await self._store.children(keys.POLICIES):
            await self._look_at_tenant(tenant)
        await self._look_at_partitioned()
        for tenant in await self._store.children(keys.MANAGED_LEDGERS):
            for namespace in await self._store.children(f"{keys.MANAGED_LEDGERS}/{tenant}"):
                await self._look_at_logs(f"{keys.MANAGED_LEDGERS}/{tenant}/{namespace}")
        await self._look_at_schemas()
        return self.found

    async def _look_at_cluster(self) -> None:
        found = self.found
        names = [name for name in await self._store.children(keys.CLUSTERS) if name != "global"]
        found.counts["clusters"] = len(names)
        if self._cluster not in names:
            found.prevent(
                keys.CLUSTERS,
                f"Apache Pulsar has no cluster {self._cluster} here, but: {', '.join(names) or 'none'}",
            )
        for broker in await pulsar_brokers(self._store):
            found.prevent(
                keys.broker(broker),
                "a broker of Apache Pulsar runs: stop it, and wait for its session to end",
            )
        migration = await self._service.get(self._home + _MIGRATION)
        if migration is not None and b"NOT_STARTED" not in migration.data:
            found.prevent(_MIGRATION, "this metadata is, or was, migrated to another store")
        if await self._store.exists(_READ_ONLY):
            found.note(_READ_ONLY, "policies were read-only; brokers of Magnetar do not know that flag")
        for path, what in _NOT_READ.items():
            if await self._service.children(self._home + path):
                found.note(path, what)

    async def _look_at_tenant(self, tenant: str) -> None:
        self.found.counts["tenants"] += 1
        await self._document(keys.tenant(tenant))
        for namespace in await self._store.children(keys.tenant(tenant)):
            path = f"{keys.tenant(tenant)}/{namespace}"
            if await self._store.children(path):
                self.found.note(
                    path, "it belongs to names of version 1 (tenant/cluster/namespace): not served"
                )
                continue
            document = await self._document(path)
            if document is None:
                continue
            self.found.counts["namespaces"] += 1
            for said in policies_without_effect(document, self._cluster):
                self.found.note(path, said)

    async def _document(self, path: str) -> dict[str, object] | None:
        value = await self._store.get(path)
        if value is None:
            return None
        try:
            return dict(object_of(path, value.data))
        except DamagedDocumentError as error:
            self.found.prevent(path, str(error))
            return None

    async def _look_at_partitioned(self) -> None:
        root = "/admin/partitioned-topics"
        for tenant in await self._store.children(root):
            for namespace in await self._store.children(f"{root}/{tenant}"):
                for domain in await self._store.children(f"{root}/{tenant}/{namespace}"):
                    for topic in await self._store.children(f"{root}/{tenant}/{namespace}/{domain}"):
                        document = await self._document(f"{root}/{tenant}/{namespace}/{domain}/{topic}")
                        self.found.counts["partitioned topics"] += document is not None

    # -- topics ------------------------------------------------------------------------------------

    async def _look_at_logs(self, namespace: str) -> None:
        for domain in await self._store.children(namespace):
            path = f"{namespace}/{domain}"
            if domain != "persistent":
                self.found.note(
                    path, "it belongs to names of version 1 (tenant/cluster/namespace): not served"
                )
                continue
            for child in await self._store.children(path):
                await self._look_at_log(f"{path}/{child}", child)

    async def _look_at_log(self, path: str, child: str) -> None:
        found = self.found
        found.counts["topics"] += 1
        try:
            local = decode_local(child)
            value = await self._store.get(path)
            metadata = LogMetadata() if value is None else decode(value.data, path)
        except (InvalidNameError, InvalidLogDataError) as error:
            found.prevent(path, str(error))
            return
        for record in metadata.ledgers:
            await self._look_at_ledger(path, record.ledger_id)
            if record.offload is not None and record.offload.complete and record.offload.foreign:
                what = "offloaded" + (
                    " only: its messages cannot be read" if record.offload.local_deleted else ""
                )
                told = found.prevent if record.offload.local_deleted else found.note
                told(path, f"ledger {record.ledger_id} is {what}")
        if metadata.ledgers and _TRANSACTIONS.fullmatch(local):
            found.prevent(path, "it belongs to transactions of Apache Pulsar, which are not taken over")
        elif metadata.ledgers and _SNAPSHOTS.fullmatch(local):
            found.prevent(
                path,
                "topics of this namespace had transactions: which messages were aborted is not known here",
            )
        for name in await self._store.children(path):
            await self._look_at_cursor(f"{path}/{name}", name)

    async def _look_at_cursor(self, path: str, child: str) -> None:
        found = self.found
        found.counts["subscriptions"] += 1
        value = await self._store.get(path)
        if value is None:
            return
        try:
            name = decode_local(child)
            info = decode_info(value.data, path)
        except (InvalidNameError, InvalidLogDataError) as error:
            found.prevent(path, str(error))
            return
        if name.startswith(_REPLICATOR):
            found.note(path, "nothing is replicated; the cursor is kept, and holds back what it has not read")
        if info.ledger_id != IN_STORE:
            await self._look_at_ledger(path, info.ledger_id, of_cursor=True)

    async def _look_at_ledger(self, path: str, ledger_id: LedgerId, *, of_cursor: bool = False) -> None:
        self.found.counts["ledgers"] += 1
        try:
            metadata = (await self._ledgers.read(ledger_id)).metadata
        except NoSuchLedgerError:
            # As Pulsar does, a cursor falls back to the position in its node.
            told = self.found.note if of_cursor else self.found.prevent
            told(path, f"its ledger {ledger_id} is gone")
            return
        except MagnetarError as error:
            self.found.prevent(path, f"its ledger {ledger_id} is not understood: {error}")
            return
        if metadata.password:
            self.found.prevent(path, f"its ledger {ledger_id} has a password")

    # -- schemas -----------------------------------------------------------------------------------

    async def _look_at_schemas(self) -> None:
        for tenant in await self._store.children(keys.SCHEMAS):
            for namespace in await self._store.children(f"{keys.SCHEMAS}/{tenant}"):
                for topic in await self._store.children(f"{keys.SCHEMAS}/{tenant}/{namespace}"):
                    path = f"{keys.SCHEMAS}/{tenant}/{namespace}/{topic}"
                    value = await self._store.get(path)
                    if value is None or not value.data:
                        continue
                    try:
                        locator = decode_locator(path, value.data)
                    except DamagedDocumentError as error:
                        self.found.prevent(path, str(error))
                        continue
                    for each in locator.index:
                        self.found.counts["schema versions"] += 1
                        await self._look_at_ledger(path, LedgerId(each.position.ledgerId))
