"""Finds entries of a cluster that no bookie has any more. Brokers and bookies may run.

Every entry of every closed ledger is read, with its checksum, as a broker reads it. It is lost when all
bookies that should have it answer that they lack it, or have it damaged. When one does not answer, nothing
can be said of what it has. As with every reader, a bad copy beside a good one is rewritten; nothing else is
changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.errors import CorruptDataError, LedgerError, StartupError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.client.cluster import Bookies, Cluster
from magnetar.ledger.client.handles import LedgerHandle
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.managedlog.cursors.cursor_codec import decode_info
from magnetar.managedlog.log_metadata import ROOT, decode
from magnetar.metadata import keys
from magnetar.metadata.adoption import store_of_cluster
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import gathered
from magnetar.server.storage.cluster_losses import decode_losses

READ_BYTES: Final = 4 << 20
"""Payload that is read of a ledger at once."""
_TOGETHER: Final = 8
"""Ledgers that are read at the same time."""
_UNCLEAR_MAX: Final = 3
"""Entries of a ledger about which bookies do not answer, after which the rest of it is not asked for: each
takes the time after which a read is given up."""
_PATIENCE_S: Final = 10.0
"""Seconds after which an operator is told that the metadata service cannot be reached."""


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """Entries of one ledger that cannot be read."""

    topic: str
    """`tenant/namespace/persistent/<encoded topic>`, with the cursor for a cursor's ledger; "": not known."""
    ledger: LedgerId
    first: int
    last: int
    given_up: bool = False
    reason: str = ""
    """Why nothing can be said of them; "": they are lost."""


@dataclass(slots=True)
class ClusterReport:
    """What was found."""

    topics: int = 0
    ledgers: int = 0
    """Closed ledgers that were read."""
    entries: int = 0
    """Entries with a good copy."""
    open_ledgers: int = 0
    """Ledgers that are being written, which are not read."""
    offloaded: int = 0
    """Ledgers whose only copy is in an object store, which is not read."""
    lost: list[MissingEntries] = field(default_factory=list)
    unclear: list[MissingEntries] = field(default_factory=list)
    """Entries about which not all bookies answered."""

    @property
    def undecided(self) -> list[MissingEntries]:
        """Lost entries that are not given up."""
        return [each for each in self.lost if not each.given_up]

    @property
    def is_good(self) -> bool:
        """Whether every entry that was asked for can be read."""
        return not (self.lost or self.unclear)


async def check(url: str, cluster: str, access: LedgerClientOptions) -> ClusterReport:
    """Checks the cluster of that name at the metadata service `url`. `access`: how bookies are reached.

    Raises StartupError, MetadataError, InvalidLogDataError for a damaged value: see `metadata_doctor`.
    """
    parsed = parse_metadata_url(url)
    if parsed.kind not in ("zk", "etcd"):
        raise StartupError(f"{url!r}: brokers of a cluster share a service, zk://… or etcd://…")
    service = await open_metadata(parsed, SystemClock(), call_timeout_s=_PATIENCE_S)
    try:
        try:
            tree = await open_tree(service, parsed.root, layout=parsed.layout)
        except (ClusterNotInitializedError, LayoutError) as error:
            raise StartupError(str(error)) from error
        store, _ = await store_of_cluster(service, cluster)
        bookies = TreeBookieRegistry(service, tree)
        try:
            return await ClusterDoctor(store, TreeLedgerRegistry(service, tree), bookies, access).check()
        finally:
            await bookies.close()
    finally:
        await service.close()


class ClusterDoctor:
    """One check."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: TreeLedgerRegistry,
        bookies: Bookies,
        access: LedgerClientOptions,
    ) -> None:
        """`store`: the metadata of the brokers."""
        self.report = ClusterReport()
        self._store = store
        self._cluster = Cluster(ledgers, bookies, access)
        self._names: dict[LedgerId, str] = {}
        """What a ledger belongs to, as far as lists and cursors name it."""
        self._of_topics: set[LedgerId] = set()
        """Ledgers that are in the list of a topic, and whose messages are on bookies."""
        self._given_up: dict[LedgerId, list[tuple[int, int]]] = {}

    async def check(self) -> ClusterReport:
        """Reads everything once. Raises MetadataError, InvalidLogDataError."""
        try:
            value = await self._store.get(keys.GIVEN_UP)
            for each in [] if value is None else decode_losses(value.data, keys.GIVEN_UP):
                self._given_up.setdefault(each.ledger, []).append((each.first, each.last))
            await self._name_all()
            found = [ledger_id async for ledger_id in self._cluster.ledgers.ledger_ids()]
            for start in range(0, len(found), _TOGETHER):
                await gathered(self._check(ledger_id) for ledger_id in found[start : start + _TOGETHER])
            for ledger_id in sorted(self._of_topics - set(found)):
                await self._check_gone(ledger_id)
        finally:
            await self._cluster.close()
        self.report.lost.sort(key=lambda each: (each.topic, each.ledger, each.first))
        return self.report

    # -- whose ledgers they are --------------------------------------------------------------------

    async def _name_all(self) -> None:
        async for name in self._logs():
            self.report.topics += 1
            await self._name(name)

    async def _logs(self) -> AsyncIterator[str]:
        for tenant in await self._store.children(ROOT):
            for namespace in await self._store.children(f"{ROOT}/{tenant}"):
                parent = f"{tenant}/{namespace}/persistent"
                for topic in await self._store.children(f"{ROOT}/{parent}"):
                    yield f"{parent}/{topic}"

    async def _name(self, name: str) -> None:
        value = await self._store.get(f"{ROOT}/{name}")
        if value is None:
            return
        for record in decode(value.data, name).ledgers:
            self._names[record.ledger_id] = name
            if record.offload is not None and record.offload.local_deleted:
                self.report.offloaded += 1
            elif record.sealed:
                self._of_topics.add(record.ledger_id)
        for cursor in await self._store.children(f"{ROOT}/{name}"):
            if (told := await self._store.get(f"{ROOT}/{name}/{cursor}")) is not None:
                info = decode_info(told.data, f"{name}/{cursor}")
                for ledger_id in (info.ledger_id, *info.side_ledgers):
                    self._names[ledger_id] = f"{name} cursor {cursor}"

    # -- what can be read --------------------------------------------------------------------------

    async def _check_gone(self, ledger_id: LedgerId) -> None:
        """A list names a ledger that the metadata does not have. It may have been deleted meanwhile."""
        name = self._names[ledger_id]
        value = await self._store.get(f"{ROOT}/{name}")
        for record in () if value is None else decode(value.data, name).ledgers:
            offloaded = record.offload is not None and record.offload.local_deleted
            if record.ledger_id == ledger_id and not offloaded:
                self._add(self.report.lost, ledger_id, 0, record.entries - 1)

    async def _check(self, ledger_id: LedgerId) -> None:
        try:
            stored = await self._cluster.ledgers.read(ledger_id)
        except NoSuchLedgerError:
            # It was deleted meanwhile.
            return
        end = stored.metadata.end
        if end is None:
            self.report.open_ledgers += 1
            return
        self.report.ledgers += 1
        handle = LedgerHandle(self._cluster, stored, stored.metadata.password, end)
        entry, unclear = 0, 0
        while entry <= end.last_entry:
            try:
                read = len(await handle.read(entry, end.last_entry, READ_BYTES))
            except NoSuchLedgerError:
                # It was deleted meanwhile, so nothing of it is missing.
                return
            except CorruptDataError:
                # No copy is good: the report says so, and the next entry is read.
                read = 1
                self._add(self.report.lost, ledger_id, entry, entry)
            except LedgerError as error:
                # A bookie did not answer: the report has the reason, and the next entry is read.
                unclear += 1
                last = end.last_entry if unclear == _UNCLEAR_MAX else entry
                self._add(self.report.unclear, ledger_id, entry, last, str(error))
                read = last - entry + 1
            else:
                self.report.entries += read
            entry += read

    def _add(
        self,
        found: list[MissingEntries],
        ledger_id: LedgerId,
        first: int,
        last: int,
        reason: str = "",
    ) -> None:
        """Adds to what was found, to the range before where it goes on."""
        given_up = any(start <= first and last <= stop for start, stop in self._given_up.get(ledger_id, []))
        before = next((each for each in reversed(found) if each.ledger == ledger_id), None)
        if before is not None and before.last + 1 == first and before.given_up == given_up:
            found.remove(before)
            first, reason = before.first, before.reason
        name = self._names.get(ledger_id, "")
        found.append(MissingEntries(name, ledger_id, first, last, given_up, reason))
