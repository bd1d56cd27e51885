"""The brokers of the cluster, read from the metadata service and kept up to date (driver)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.broker.ownership.records import BrokerReport, BrokerUrls
from magnetar.metadata import keys
from magnetar.metadata.store import MetadataStore
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.runtime.tasks import Rounds, TaskGroup

_log = logging.getLogger("magnetar.proxy")

_AGAIN_S: Final = 10.0
"""Seconds between two readings without a notice: one may get lost with a session."""


class Members:
    """Keeps `targets` as the metadata service has them."""

    def __init__(self, stores: Sequence[MetadataStore], targets: KnownBrokers, tasks: TaskGroup) -> None:
        """Reads in `tasks` from now on. `stores`: where brokers may be registered."""
        self._stores = stores
        self._targets = targets
        self._known: dict[str, BrokerUrls] = {}
        rounds = Rounds(self._reload, tasks.spawn)
        self._watches = [store.watch(keys.BROKERS, lambda _: rounds.ask()) for store in stores]
        tasks.every(_AGAIN_S, self._reload)

    def close(self) -> None:
        """Stops watching."""
        for cancel in self._watches:
            cancel()

    async def load(self) -> None:
        """Reads the brokers. Raises MetadataError."""
        found: dict[str, BrokerUrls] = {}
        for store in self._stores:
            for name in await store.children(keys.BROKERS):
                value = await store.get(keys.broker(name))
                if value is None:
                    continue
                try:
                    found[name] = BrokerReport.decode(value.data).urls
                except ValueError as error:
                    # No client is led to it; the others are served.
                    _log.warning("the record of broker %s is not understood: %s", name, error)
        if found != self._known:
            _log.info("brokers of the cluster: %s", ", ".join(sorted(found)) or "none")
            self._known = found
            self._targets.replace(found.values())

    async def _reload(self) -> None:
        try:
            await self.load()
        except MetadataError as error:
            # Brokers that were there a moment ago mostly are there still.
            _log.warning("the brokers of the cluster could not be read: %s", error)
