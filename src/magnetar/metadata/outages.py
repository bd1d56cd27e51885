"""Outages of a shared metadata service, in the log and among the metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.metadata.store import MetadataStore, SessionEvent
from magnetar.observability.metrics import Exposition

_log = logging.getLogger("magnetar.metadata")

_BACK: Final = (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED)


class Outages:
    """Those of one store's service."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._lost_ms: float | None = None
        """When contact was lost; None: it is there."""
        self.close = store.watch_session(self._changed)
        """Stops listening."""

    def _changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTION_LOST and self._lost_ms is None:
            self.count += 1
            self._lost_ms = self._clock.monotonic_ms()
            _log.warning("the metadata service cannot be reached: what is loaded goes on")
        elif event in _BACK and self._lost_ms is not None:
            away_s = (self._clock.monotonic_ms() - self._lost_ms) / 1000
            self._lost_ms = None
            _log.info("the metadata service is reached again, after %.1f s", away_s)

    def collect_metrics(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        out.gauge(
            "magnetar_metadata_service_connected",
            "Whether ZooKeeper or etcd can be reached: 0 or 1.",
            self._lost_ms is None,
        )
        out.counter(
            "magnetar_metadata_service_outages_total",
            "How often contact with ZooKeeper or etcd was lost.",
            self.count,
        )
        return ()
