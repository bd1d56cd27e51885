"""Settings of offloading to an object store."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.server.settings.sql_settings import SqlSettings
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.storage import READ_CACHE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings(SqlSettings):
    """The settings of offloading."""

    offload_url: str = ""
    """Store that sealed ledgers are copied to: tiered storage."""
    offload_threshold_bytes: int = -1
    """Bytes of a topic's newest sealed ledgers that need no copy, when policies say nothing; older ledgers
    are copied. -1: size is no reason to copy. At least -1."""
    offload_threshold_seconds: int = -1
    """Age, in seconds, at which a sealed ledger is copied, when policies say nothing; -1: age is no reason to
    copy. At least -1."""
    offload_deletion_lag_ms: int = 4 * 3_600_000
    """Time, in milliseconds, for which the message store keeps a ledger after its copy is complete, when
    policies say nothing; -1: without limit. At least -1."""
    offload_max_age_seconds: int = 0
    """Age, in seconds, of a message at which its ledger is sealed and copied, when policies say nothing; 0:
    ledgers end by their own size and age only. 0, or at least 60."""
    offload_interval_seconds: int = 60
    """Time, in seconds, between two checks of all topics for ledgers to copy. At least 1."""
    offload_merge_interval_seconds: int = 600
    """Time, in seconds, between two searches for small files of history, which are merged; 0: on request
    only. At least 0."""
    offload_niceness: int = 10
    """Niceness of the process that makes the files of history: higher values give other processes priority.
    When other work uses all cores, history falls behind less with 0. From 0 to 19."""
    offload_busy_percent: int = 25
    """Largest share of time, in percent, that offloading takes while clients publish. From 2 to 100."""
    offload_bytes_per_s_max: int = 0
    """Bytes of ledgers that offloading reads per second; 0: no limit. At least 0."""
    offload_read_cache_bytes: int = READ_CACHE_BYTES
    """Memory for offloaded data that consumers read, over all topics. At least 8 MiB."""
    offload_orphan_hours: int = 24
    """Age, in hours, at which objects that no topic names are deleted. At least 1."""
    offload_owner_poll_seconds: int = 5
    """Time, in seconds, between two checks of the owner of a store. After a crash a broker waits three times
    as long before it offloads or deletes objects, unless the store is in the data folder. At least 1."""
    lake_catalog: str = ""
    """Catalog of the Iceberg tables: the URL of a REST catalog or of a database, `environment`, or `none` for
    no tables."""


def default_policy(settings: OffloadSettings) -> OffloadPolicy:
    """The offload policy of a topic without policies."""
    return OffloadPolicy(
        threshold_bytes=settings.offload_threshold_bytes,
        threshold_s=settings.offload_threshold_seconds,
        deletion_lag_ms=settings.offload_deletion_lag_ms,
        max_age_s=settings.offload_max_age_seconds,
    )
