"""Which brokers may have a bundle: the isolation policies of the cluster, read anew when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING

from magnetar.base.errors import MetadataError
from magnetar.base.names import NamespaceName
from magnetar.broker.ownership.isolation import IsolationPolicy, brokers_for, policies_of, stays
from magnetar.metadata import keys
from magnetar.runtime.tasks import Rounds

if TYPE_CHECKING:
    from magnetar.broker.policies.policies import PolicyStore

_log = logging.getLogger("magnetar.broker.ownership")


class PlacementRules:
    """The rules as one broker knows them."""

    def __init__(
        self, policies: PolicyStore, spawn: Callable[[Coroutine[object, object, None]], None]
    ) -> None:
        self._policies = policies
        self._key = keys.isolation_policies(policies.cluster)
        self._known: list[IsolationPolicy] = []
        self._rounds = Rounds(self._reload, spawn)
        policies.on_change(self._changed)

    def _changed(self, path: str) -> None:
        if path in (self._key, keys.ADMIN):
            self._rounds.ask()

    async def load(self) -> None:
        """Reads the rules. Raises MetadataError."""
        self._known = policies_of(await self._policies.document(self._key))

    async def _reload(self) -> None:
        try:
            await self.load()
        except MetadataError as error:
            # The former rules hold; the connection's return asks again.
            _log.warning("the isolation policies could not be read: %s", error)

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
