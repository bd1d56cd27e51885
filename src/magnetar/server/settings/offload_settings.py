"""Settings of offloading to an object store."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.server.settings.limit_settings import LimitSettings
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.storage import READ_CACHE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings(LimitSettings):
    """The part of the settings that is about offloading."""

    offload_url: str = ""
    """Where sealed ledgers are copied to: file://, s3://, gs://, az:// or hdfs://; empty: a folder of the
    data folder. Credentials never stand here."""
    offload_threshold_bytes: int = -1
    """Bytes of a topic's newest sealed ledgers that stay without a copy, where policies say nothing; -1: no
    ledger is copied because of its size."""
    offload_threshold_seconds: int = -1
    """Age at which a sealed ledger is copied; -1: none is because of its age."""
    offload_deletion_lag_ms: int = 4 * 3_600_000
    """How long the message store keeps a ledger after its copy is complete; -1: for ever."""
    offload_max_age_seconds: int = 0
    """Age of a message at which its ledger is sealed and copied, where policies say nothing. At least 60; 0:
    ledgers end by their size and age alone."""
    offload_interval_seconds: int = 60
    """Between two looks at all topics. At least 1."""
    offload_merge_interval_seconds: int = 600
    """Between two looks for small objects that become one; 0: only on request."""
    offload_niceness: int = 10
    """By how much other processes of the machine go before the one that makes history's files. 0 to 19."""
    offload_busy_percent: int = 25
    """Share of time that offloading takes while clients publish, at most. 2 to 100."""
    offload_bytes_per_s_max: int = 0
    """Bytes of ledgers that are read for it each second, at most; 0: no limit."""
    offload_read_cache_bytes: int = READ_CACHE_BYTES
    """Bytes of copies kept in memory for consumers, over all topics. At least 8 MiB."""
    offload_orphan_hours: int = 24
    """Age at which objects that no topic names are deleted. At least 1."""
    offload_owner_poll_seconds: int = 5
    """Between two looks at whose a store is. Who starts after a crash waits three times as long before it
    offloads or deletes objects, unless the store lies in the data folder. At least 1."""
    lake_catalog: str = ""
    """Where Iceberg's tables over the copies are listed: the URL of a REST catalog or of a database,
    "environment" for pyiceberg's own settings, "none" for no tables; empty: a file of the data folder."""


def default_policy(settings: OffloadSettings) -> OffloadPolicy:
    """The policy of a topic of which nothing is said."""
    return OffloadPolicy(
        threshold_bytes=settings.offload_threshold_bytes,
        threshold_s=settings.offload_threshold_seconds,
        deletion_lag_ms=settings.offload_deletion_lag_ms,
        max_age_s=settings.offload_max_age_seconds,
    )
