"""Reads and writes the metadata of a cluster for `magnetar cluster`; brokers may run or not."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.broker.balance import last_moves
from magnetar.broker.balance.leadership import named_leader
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.listing import owners_in
from magnetar.broker.ownership.records import DRAINS, BrokerReport, drain_path
from magnetar.broker.policies.policies import PolicyStore
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata import keys
from magnetar.metadata.adoption import (
    PULSAR_PATHS,
    RECORD,
    Adoption,
    home_of,
    pulsar_store,
    scope_of,
    store_of_cluster,
)
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster, open_tree
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError, LedgerLayout
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.opening import MetadataUrl, open_metadata, parse_metadata_url
from magnetar.metadata.store import MetadataStore, NotFoundError
from magnetar.runtime.clock import SystemClock
from magnetar.server.adoption.findings import AdoptionFindings
from magnetar.server.adoption.importing import import_topic_policies
from magnetar.server.adoption.survey import Survey
from magnetar.server.storage.cluster_losses import accept_loss

_PATIENCE_S: Final = 10.0
"""Seconds after which an operator is told that the metadata service cannot be reached."""


class ClusterMetadata:
    """The metadata of one cluster. Use `opened`."""

    def __init__(
        self, service: MetadataStore, url: MetadataUrl, cluster: str, store: MetadataStore, *, adopted: bool
    ) -> None:
        """Use `opened`."""
        self._adopted = adopted
        self._service = service
        self._url = url
        self._cluster = cluster
        self._store = store

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str, cluster: str) -> AsyncIterator[ClusterMetadata]:
        """Opens the metadata of the cluster of that name at the service `url`. Raises StartupError,
        MetadataError."""
        parsed = parse_metadata_url(url)
        if parsed.kind not in ("zk", "etcd"):
            raise StartupError(f"{url!r}: brokers of a cluster share a service, zk://… or etcd://…")
        service = await open_metadata(parsed, SystemClock(), call_timeout_s=_PATIENCE_S)
        try:
            store, adopted = await store_of_cluster(service, cluster)
            yield cls(service, parsed, cluster, store, adopted=adopted)
        finally:
            await service.close()

    async def initialize(self) -> None:
        """Makes the missing parts of a new cluster: the tree of bookies, tenants and namespaces.

        Raises LayoutError, MetadataError.
        """
        if self._adopted:
            raise StartupError(f"the cluster {self._cluster} was adopted: all that it needs is there")
        layout = self._url.layout or LedgerLayout.HIERARCHICAL
        await initialize_cluster(self._service, BookKeeperTree(self._url.root, layout), str(uuid.uuid4()))
        policies = PolicyStore(self._store, self._cluster)
        policies.documents.share()
        try:
            await policies.bootstrap("", "")
        finally:
            policies.close()

    async def survey(self) -> AdoptionFindings:
        """What is found of a Pulsar cluster; changes nothing. Raises StartupError, MetadataError."""
        home = home_of(self._url.root)
        try:
            tree = await open_tree(self._service, self._url.root, layout=self._url.layout)
        except (ClusterNotInitializedError, LayoutError) as error:
            raise StartupError(str(error)) from error
        store = pulsar_store(self._service, self._cluster, home)
        ledgers = TreeLedgerRegistry(self._service, tree)
        return await Survey(self._service, store, ledgers, self._cluster, home).run()

    async def adopt(self, access: LedgerClientOptions | None = None) -> AdoptionFindings:
        """Has brokers of ours serve a Pulsar cluster where it is, unless something prevents it.

        `access`: how bookies are reached. Harmless when it was adopted before.

        Raises StartupError, MetadataError.
        """
        found = await self.survey()
        # An adopted cluster that was given back left there what Pulsar does not know.
        own = {f"/{name}" for name in await self._service.children(scope_of(self._cluster))}
        if not self._adopted and own & PULSAR_PATHS:
            raise StartupError(
                f"{scope_of(self._cluster)} already has a cluster of Magnetar's of that name, which would not"
                " be seen any more: a cluster is adopted before it is used"
            )
        if not found.obstacles and not self._adopted:
            tree = await open_tree(self._service, self._url.root)
            store = pulsar_store(self._service, self._cluster, home_of(self._url.root))
            await import_topic_policies(self._service, tree, store, access or LedgerClientOptions(), found)
        if not found.obstacles and not self._adopted:
            record = Adoption(home_of(self._url.root), SystemClock().now_ms())
            await self._service.put(scope_of(self._cluster) + RECORD, record.encode())
        return found

    async def give_back(self) -> None:
        """Ends the adoption: brokers of Pulsar's may serve the cluster again. Deletes only the record.

        Raises StartupError while brokers of ours run; MetadataError.
        """
        if not self._adopted:
            raise StartupError(f"the cluster {self._cluster} was not adopted")
        running = await self._store.children(keys.BROKERS)
        if running or await self._store.exists("/broker"):
            raise StartupError(
                f"brokers run ({', '.join(running) or 'a standalone server'}): stop them first, since what"
                " they write while they stop is what Pulsar reads"
            )
        await self._service.delete(scope_of(self._cluster) + RECORD)

    async def brokers(self) -> list[dict[str, object]]:
        """A row for each broker that runs or is to be drained. Raises MetadataError."""
        owners = await owners_in(self._store)
        counts = Counter(owners.values())
        drained = await self._store.children(DRAINS)
        leader = named_leader(await self._store.get(keys.LEADER))
        rows: list[dict[str, object]] = []
        names = await self._store.children(keys.BROKERS)
        for name in names:
            value = await self._store.get(keys.broker(name))
            if value is None:
                continue
            try:
                report = BrokerReport.decode(value.data)
            except ValueError:
                rows.append({"broker": name, "state": "not understood", "bundles": counts[name]})
            else:
                rows.append(_row(name, report, counts[name], drained=name in drained))
        for name in {*drained, *counts}.difference(names):
            state = "gone, drained" if name in drained else "gone"
            rows.append({"broker": name, "state": state, "bundles": counts[name]})
        for row in rows:
            row["leader"] = "leads" if row["broker"] == leader else ""
        return sorted(rows, key=lambda row: str(row["broker"]))

    async def last_moves(self) -> list[dict[str, object]]:
        """Bundles that the leader has moved for their load, a row for each, the oldest first.

        Raises MetadataError.
        """
        return [
            {
                "at": datetime.fromtimestamp(each.at_ms / 1000, UTC).isoformat(timespec="seconds"),
                "bundle": each.bundle,
                "from": each.source,
                "to": each.target,
                "reason": each.reason,
            }
            for each in await last_moves.read(self._store)
        ]

    async def owners(self) -> dict[Bundle, str]:
        """The owner of every bundle that has one. Raises MetadataError."""
        return await owners_in(self._store)

    async def drain(self, broker: str, *, force: bool = False) -> None:
        """Marks a broker to be drained: it gives all its bundles to others, and takes none.

        Raises StartupError unless the broker runs, owns a bundle, or `force` is set; MetadataError.
        """
        if not force and broker not in await self._store.children(keys.BROKERS):
            owners = set((await owners_in(self._store)).values())
            if broker not in owners:
                raise StartupError(
                    f"there is no broker {broker}: magnetar cluster status shows their names;"
                    " --force drains one that is not there yet"
                )
        await self._store.put(drain_path(broker), b"")

    async def undrain(self, broker: str) -> None:
        """Removes the mark: the broker may take bundles again. Raises MetadataError."""
        with contextlib.suppress(NotFoundError):  # it was not drained
            await self._store.delete(drain_path(broker))

    async def accept_loss(self, ledger: LedgerId, first: int, last: int) -> None:
        """See `accept_loss` of `server/storage/cluster_losses.py`."""
        await accept_loss(self._store, ledger, first, last)


def _row(name: str, report: BrokerReport, bundles: int, *, drained: bool) -> dict[str, object]:
    load = report.load
    return {
        "broker": name,
        "state": "leaving" if report.draining and not drained else "drained" if drained else "serves",
        "url": report.urls.addresses.plain or report.urls.addresses.tls,
        "version": report.version,
        "bundles": bundles,
        "topics": load.topics,
        "producers": load.producers,
        "consumers": load.consumers,
        "messages_in_per_s": round(load.rate_in, 1),
        "messages_out_per_s": round(load.rate_out, 1),
        "cpu_percent": round(load.cpu_percent, 1),
        "waited_percent": round(load.waited_percent, 1),
        "metadata_outages": report.outages,
    }
