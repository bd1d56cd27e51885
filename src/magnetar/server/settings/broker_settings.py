"""Converts the settings of the process to those of its broker."""

from __future__ import annotations

from magnetar.broker.config import BrokerConfig
from magnetar.broker.dedup.dedup_state import DedupLimits
from magnetar.broker.inactive.policy import DeleteMode, InactivePolicy
from magnetar.broker.listeners import Listeners, parse_listeners
from magnetar.broker.policies.creation import CreationRules
from magnetar.broker.policies.schema_rules import SchemaRules
from magnetar.ledger.api import Copies
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.schemas.compatibility import Strategy
from magnetar.server.settings.config import StandaloneConfig, names
from magnetar.server.settings.limit_settings import default_limits, tenant_limits
from magnetar.server.settings.sql_settings import query_bounds


def listeners_of(
    config: StandaloneConfig, plain_port: int, http_port: int, tls_port: int, https_port: int
) -> Listeners:
    """The addresses for look-ups; ports that are 0 are not served."""
    named = parse_listeners(config.advertised_listeners)
    return Listeners(
        plain_port=plain_port,
        tls_port=tls_port,
        http_port=http_port,
        https_port=https_port,
        named=named,
        internal=config.internal_listener or next(iter(named), ""),
    )


def log_config(config: StandaloneConfig, *, for_pulsar: bool) -> ManagedLogConfig:
    """The limits of managed logs. `for_pulsar`: see `ManagedLogConfig.cursors_for_pulsar`."""
    return ManagedLogConfig(
        cache_bytes=config.cache_bytes,
        rollover_ms_min=1_000 * config.ledger_rollover_min_seconds,
        cursors_for_pulsar=for_pulsar,
    )


def broker_config(config: StandaloneConfig) -> BrokerConfig:
    """The configuration of the broker."""
    return BrokerConfig(
        cluster=config.cluster,
        advertised_host=config.advertised_address or None,
        trust_certs=str(config.broker_tls_ca or ""),
        message_bytes_max=config.max_message_bytes,
        skip_lost=config.auto_skip_non_recoverable_data,
        exposes_broker_metadata=config.expose_broker_metadata,
        deduplication=config.deduplication,
        deduplication_limits=DedupLimits(
            producers_max=config.deduplication_producers_max,
            inactivity_ms=config.deduplication_inactivity_minutes * 60_000,
            snapshot_entries=config.deduplication_snapshot_entries,
            snapshot_ms=config.deduplication_snapshot_seconds * 1000,
        ),
        schemas=SchemaRules(
            strategy=Strategy(config.schema_compatibility),
            auto_update_allowed=config.schema_auto_update,
            validation_enforced=config.schema_validation_enforced,
        ),
        copies=_copies(config),
        authorization=config.authorization,
        metrics_roles=frozenset(names(config.metrics_roles)),
        tenant_rates=config.tenant_rates,
        limits=default_limits(config),
        limits_interval_s=config.limits_interval_seconds,
        creation=_creation(config),
        inactive=InactivePolicy(
            delete=config.inactive_topic_deletion,
            mode=DeleteMode(config.inactive_topic_mode),
            idle_s=config.inactive_topic_seconds,
        ),
        inactive_partitioned=config.inactive_partitioned_topic_deletion,
        transactions=config.transactions,
        transactions_open_max=config.transactions_open_max,
        idle_topic_unload_s=config.idle_topic_unload_seconds,
        inactive_interval_s=config.inactive_topic_interval_seconds,
        subscription_expiration_minutes=config.subscription_expiration_minutes,
        offload_max_age_s=config.offload_max_age_seconds,
        compaction_threshold_bytes=config.compaction_threshold_bytes,
        compaction_interval_s=config.compaction_interval_seconds,
        compaction_retain_null_key=config.compaction_retain_null_key,
        in_flight_bytes_max=config.publish_pending_bytes_max,
        connection_output_bytes_max=config.connection_output_bytes_max,
        output_bytes_max=config.output_bytes_max,
        tenants=tenant_limits(config),
        connect_timeout_s=config.connect_timeout_seconds,
        disk_full_percent=config.disk_full_percent,
        disk_resume_percent=config.disk_resume_percent,
        http_calls_per_second=config.http_calls_per_second,
        websocket_enabled=config.websocket_enabled,
        metrics_topics_max=config.metrics_topics_max,
        queries=query_bounds(config),
        retention_minutes=config.retention_minutes,
        retention_mib=config.retention_mib,
    )


def _creation(config: StandaloneConfig) -> CreationRules:
    return CreationRules(
        topics=config.auto_topic_creation,
        partitions=config.auto_topic_partitions,
        subscriptions=config.auto_subscription_creation,
    )


def _copies(config: StandaloneConfig) -> Copies | None:
    if config.bookies or config.metadata_url:
        return Copies(config.ledger_ensemble_size, config.ledger_write_quorum, config.ledger_ack_quorum)
    return None
