"""Settings of canaries, the export of metrics, and the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.observability.logs import PER_MINUTE_MAX
from magnetar.server.settings.offload_settings import OffloadSettings

if TYPE_CHECKING:
    from magnetar.broker.canary.choice import CanarySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSettings(OffloadSettings):
    """The settings of monitoring."""

    canary_namespaces: str = ""
    """Namespaces that have a canary, separated by commas, also patterns such as `orders/*`; a namespace's
    property `canary` overrides this."""
    canary_interval_seconds: int = 5
    """Time, in seconds, between two messages of a canary. At least 1."""
    canary_timeout_seconds: int = 10
    """Time, in seconds, after which a canary's message counts as lost. At least 1."""
    metrics_roles: str = ""
    """Roles, separated by commas, that may read the metrics; superusers may anyway."""
    otlp_endpoint: str = ""
    """OpenTelemetry collector that gets the metrics, `http://host:4318` or `grpc://host:4317`; `https` and
    `grpcs` over TLS."""
    otlp_interval_seconds: int = 60
    """Time, in seconds, between two exports of metrics. At least 1."""
    log_event_records_per_minute: int = PER_MINUTE_MAX
    """Log records of one event per minute; the next record says how many were left out. 0: no limit. At least
    0."""


def canary_settings(settings: MonitoringSettings) -> CanarySettings:
    """The settings of the canaries."""
    from magnetar.broker.canary.choice import CanarySettings

    patterns = (part.strip() for part in settings.canary_namespaces.split(","))
    return CanarySettings(
        namespaces=tuple(filter(None, patterns)),
        interval_s=settings.canary_interval_seconds,
        timeout_s=settings.canary_timeout_seconds,
    )
