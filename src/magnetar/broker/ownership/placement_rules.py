"""Which brokers may have a bundle, and which of these should: the isolation policies, anti-affinity groups
and failure domains of the cluster, read anew when they change."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MetadataError
from magnetar.base.names import InvalidNameError, NamespaceName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.isolation import IsolationPolicy, brokers_for, policies_of, stays
from magnetar.broker.ownership.records import NAMESPACES, BrokerUrls
from magnetar.broker.ownership.spread import Groups
from magnetar.metadata import keys
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import Rounds

if TYPE_CHECKING:
    from magnetar.broker.policies.policies import PolicyStore

_log = logging.getLogger("magnetar.broker.ownership")

GROUP: Final = "namespaceAntiAffinityGroup"
"""Key of a namespace's group in its local policies."""


class PlacementRules:
    """The rules as one broker knows them."""

    def __init__(
        self,
        policies: PolicyStore,
        store: MetadataStore,
        spawn: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """`store`: has the records of owners."""
        self.groups = Groups()
        """Anti-affinity groups, and where their namespaces are."""
        self._policies = policies
        self._store = store
        self._key = keys.isolation_policies(policies.cluster)
        self._domains = keys.failure_domains(policies.cluster)
        self._known: list[IsolationPolicy] = []
        self._rounds = Rounds(self._reload, spawn)
        policies.on_change(self._changed)

    def _changed(self, path: str) -> None:
        of_groups = path.startswith(f"{self._domains}/") or _namespace_at(path) is not None
        if path in (self._key, keys.ADMIN) or of_groups:
            self._rounds.ask()

    def owner_changed(self, bundle: Bundle) -> None:
        """To be called when a record of an owner was made or removed."""
        if bundle.namespace in self.groups.group_of:
            self._rounds.ask()

    async def load(self) -> None:
        """Reads the rules. Raises MetadataError."""
        self._known = policies_of(await self._policies.document(self._key))
        group_of = {name: group async for name, group in self._grouped()}
        served = {name: await self._servers(name) for name in group_of}
        self.groups = Groups(group_of, served, await self._domains_of() if group_of else {})

    async def _grouped(self) -> AsyncIterator[tuple[NamespaceName, str]]:
        """Namespaces of groups. Most have no local policies, and are not read."""
        for tenant in await self._store.children(keys.LOCAL_POLICIES):
            for namespace in await self._store.children(f"{keys.LOCAL_POLICIES}/{tenant}"):
                name = _namespace_at(f"{keys.LOCAL_POLICIES}/{tenant}/{namespace}")
                document = None if name is None else await self._policies.document(keys.local_policies(name))
                group = (document or {}).get(GROUP)
                if name is not None and isinstance(group, str) and group:
                    yield name, group

    async def _servers(self, namespace: NamespaceName) -> frozenset[str]:
        """Ids of the brokers that have its bundles."""
        found = set()
        for bundle in await self._store.children(f"{NAMESPACES}/{namespace}"):
            value = await self._store.get(f"{NAMESPACES}/{namespace}/{bundle}")
            if value is not None:
                with contextlib.suppress(ValueError):  # a record that cannot be read names no broker
                    found.add(BrokerUrls.decode(value.data).broker_id)
        return frozenset(found)

    async def _domains_of(self) -> dict[str, str]:
        """Failure domains by broker."""
        found: dict[str, str] = {}
        for domain in await self._store.children(self._domains):
            brokers = (await self._policies.document(f"{self._domains}/{domain}") or {}).get("brokers")
            found |= {str(each): domain for each in brokers} if isinstance(brokers, list) else {}
        return found

    async def _reload(self) -> None:
        try:
            await self.load()
        except MetadataError as error:
            # The former rules hold; the connection's return asks again.
            _log.warning("the rules of placement could not be read: %s", error)

    @property
    def in_force(self) -> bool:
        """Whether there are any; else every broker may have every bundle."""
        return bool(self._known)

    def brokers_for(self, namespace: NamespaceName, brokers: Iterable[str]) -> frozenset[str]:
        """See `isolation.brokers_for`."""
        return brokers_for(namespace, brokers, self._known)

    def stays(self, namespace: NamespaceName) -> bool:
        """See `isolation.stays`."""
        return stays(namespace, self._known)


def _namespace_at(path: str) -> NamespaceName | None:
    """The namespace whose local policies are at a path; None: it is another path."""
    parts = path.removeprefix(f"{keys.LOCAL_POLICIES}/").split("/")
    if not path.startswith(f"{keys.LOCAL_POLICIES}/") or len(parts) != 2 or parts[0] == "topic-policies":
        return None
    with contextlib.suppress(
        InvalidNameError
    ):  # another program wrote it, and no namespace of ours has such a name
        return NamespaceName.parse("/".join(parts))
    return None
