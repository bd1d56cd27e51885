"""Watches over a broker: canaries, and the export of its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.broker.canary.canaries import Canaries
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import TaskGroup
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.monitoring_settings import canary_settings


def watch_over(
    broker: Broker, config: StandaloneConfig, http_url: str, tasks: TaskGroup, *, shares: bool
) -> Callable[[], Awaitable[None]] | None:
    """Begins it; what ends it, if that takes something. `shares`: it is one of several brokers."""
    if not shares:
        canaries = Canaries(broker, canary_settings(config))
        broker.collectors.append(canaries.collect)
        broker.tasks.spawn(canaries.begin())
    if not config.otlp_endpoint:
        return None
    from magnetar.server.otlp_push import OtlpPush

    push = OtlpPush(broker, config.otlp_endpoint, instance=http_url)
    tasks.every(config.otlp_interval_seconds, push.push)
    return push.close
