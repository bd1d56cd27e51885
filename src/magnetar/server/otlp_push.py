"""Sends the metrics to an OpenTelemetry collector periodically."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

from magnetar import __version__
from magnetar.admin.metrics.broker_metrics import registry_for
from magnetar.base.errors import MagnetarError, StartupError
from magnetar.broker.service import Broker
from magnetar.observability import otlp
from magnetar.runtime.scraping import scraped
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.otlp")

_NS: Final = 1_000_000_000


class OtlpPush:
    """Exports to one endpoint. Each export makes its own scrape, so that rates count from one export to the
    next."""

    def __init__(self, broker: Broker, endpoint: str, *, instance: str) -> None:
        """`instance`: id of this process in the exported metrics. Raises StartupError when the libraries are
        missing."""
        if not otlp.installed():
            raise StartupError(f"otlp_endpoint is set. {otlp.EXTRA}")
        self._endpoint = endpoint
        self._registry = registry_for(broker)
        self._about = {
            "service.name": "magnetar",
            "service.version": __version__,
            "service.instance.id": instance,
            "host.name": socket.gethostname(),
        }
        self._started_ns = time.time_ns()
        self._exporter: otlp.Exporter | None = None
        self._failing = False

    async def push(self) -> None:
        """Makes one export. The first failure and the next success are logged."""
        text = await scraped(self._registry)
        try:
            await in_thread(lambda: self._send(text))
        except MagnetarError as error:
            if not self._failing:
                _log.warning("metrics are not accepted by %s, tried again: %s", self._endpoint, error)
            self._failing = True
            return
        if self._failing:
            _log.info("metrics are accepted again by %s", self._endpoint)
        self._failing = False

    def _send(self, text: str) -> None:
        if self._exporter is None:
            # The libraries take a third of a second to import: in this thread.
            self._exporter = otlp.Exporter(self._endpoint, about=self._about, started_ns=self._started_ns)
        self._exporter.export(text, time.time_ns())

    async def close(self) -> None:
        """Makes a last export if the endpoint can be reached, and ends."""
        if self._exporter is not None:
            if not self._failing:
                await self.push()
            await in_thread(self._exporter.close)
