"""Checks settings, one by one and in combination."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from magnetar.auth.settings import METHODS
from magnetar.base.errors import StartupError
from magnetar.base.names import is_entity_name
from magnetar.bookie.segment import SEGMENT_BYTES_MAX
from magnetar.broker.inactive.policy import DeleteMode
from magnetar.broker.limits.backlog import QuotaPolicy
from magnetar.broker.listeners import parse_listeners
from magnetar.schemas.compatibility import Strategy
from magnetar.server.settings.config import MIB, StandaloneConfig, names
from magnetar.server.settings.ledger_settings import check_ledgers
from magnetar.server.settings.limit_settings import LimitSettings
from magnetar.tiered.policy import MAX_AGE_LEAST_S, is_max_age

PORT_MAX: Final = 65535
UNLIMITED: Final = -1
NUMBER_MAX: Final = (1 << 31) - 1
BYTES_MAX: Final = (1 << 63) - 1
"""Largest value of settings in bytes and milliseconds, 64 bits as in Pulsar's clients and tools; other
settings have 32 bits."""
_LARGEST: Final = {
    "segment_bytes": SEGMENT_BYTES_MAX,
    "bookies": 100,
    "unacked_blocked_percent": 100,
    "loop_percent_per_role": 100,
    "processes": 64,
}
"""Largest values of settings with a special bound."""
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


_AT_LEAST_ONE: Final = (
    "limits_interval_seconds",
    "subscribe_rate_period_seconds",
    "entry_filter_budget_ms",
    "connect_timeout_seconds",
    "unacked_blocked_percent",
)
"""Limits that must be at least 1."""

_SQL: Final = {
    "sql_queries_max": 0,
    "sql_seconds_max": 1,
    "sql_memory_mib": 384,
    "sql_spill_mib": 0,
    "sql_rows_max": 1,
}
"""Least values of the settings of SQL over HTTP."""
_SECONDS: Final = {
    "processes": 1,
    "idle_topic_unload_seconds": 0,
    "inactive_topic_seconds": 1,
    "compaction_interval_seconds": 1,
    "inactive_topic_interval_seconds": 1,
    "transactions_open_max": 1,
    "authentication_refresh_check_seconds": 1,
    "credential_refresh_seconds": 1,
    "token_allowed_clock_skew_seconds": 0,
    "openid_accepted_time_leeway_seconds": 0,
    "openid_cache_refresh_after_write_seconds": 1,
    "openid_cache_expiration_seconds": 1,
    "openid_key_id_cache_miss_refresh_seconds": 1,
    "offload_interval_seconds": 1,
    "offload_merge_interval_seconds": 0,
    "offload_owner_poll_seconds": 1,
    "otlp_interval_seconds": 1,
    "canary_interval_seconds": 1,
    "log_event_records_per_minute": 0,
    "canary_timeout_seconds": 1,
}
"""Smallest values of settings for times and the like."""


def check(config: StandaloneConfig) -> None:
    """Raises StartupError, which names the setting and the rule."""
    _check_largest(config)
    for name in ("broker_port", "http_port", "broker_tls_port", "https_port", "flight_sql_port"):
        _require(0 <= getattr(config, name) <= PORT_MAX, config, name, f"from 0 to {PORT_MAX}")
    _require(1024 <= config.max_message_bytes <= 128 * MIB, config, "max_message_bytes", "1 KiB to 128 MiB")
    for name in ("cache_bytes", "segment_bytes", "output_bytes_max", "function_package_bytes_max"):
        _require(getattr(config, name) >= MIB, config, name, "at least 1 MiB")
    for name in (
        "metrics_topics_max",
        "spare_segments",
        "prewrite_bytes_per_s",
        "ledger_rollover_min_seconds",
    ):
        _require(getattr(config, name) >= 0, config, name, "0 or more")
    _check_bytes(config)
    for name in ("retention_minutes", "retention_mib", "deduplication_snapshot_seconds"):
        _require(getattr(config, name) >= UNLIMITED, config, name, "0 or more, or -1 for no limit")
    strategies = [strategy.value for strategy in Strategy]
    _require(config.schema_compatibility in strategies, config, "schema_compatibility", "a strategy")
    for name in (
        "deduplication_producers_max",
        "deduplication_inactivity_minutes",
        "deduplication_snapshot_entries",
        "function_instances_max",
        "tenant_function_instances_max",
    ):
        _require(getattr(config, name) >= 1, config, name, "at least 1")
    _require(config.compaction_threshold_bytes >= 0, config, "compaction_threshold_bytes", "0 or more")
    modes = [mode.value for mode in DeleteMode]
    rule = "one of " + ", ".join(modes)
    _require(config.inactive_topic_mode in modes, config, "inactive_topic_mode", rule)
    _require(0 <= config.auto_topic_partitions <= 10_000, config, "auto_topic_partitions", "from 0 to 10000")
    for limit in fields(LimitSettings):
        if limit.type == "int":
            least = 1 if limit.name in _AT_LEAST_ONE else 0
            _require(getattr(config, limit.name) >= least, config, limit.name, f"at least {least}")
    _check_offloading(config)
    rule = "one of " + ", ".join(QuotaPolicy)
    policies = [policy.value for policy in QuotaPolicy]
    _require(config.backlog_quota_policy in policies, config, "backlog_quota_policy", rule)
    _check_storage(config)
    for name, least in _SECONDS.items():
        _require(getattr(config, name) >= least, config, name, f"at least {least}")
    _require(config.log_level in LOG_LEVELS, config, "log_level", "one of " + ", ".join(LOG_LEVELS))
    _require(is_entity_name(config.cluster), config, "cluster", "letters, digits and -_=:.")
    _require(bool(config.host), config, "host", "an address or a host name")
    _check_otlp(config)
    _check_ports(config)
    _check_listeners(config)
    _check_tls(config)
    for method in names(config.authentication):
        known = ", ".join(METHODS)
        _require(method in METHODS, config, "authentication", f"some of {known}, separated by commas")
    if "tls" in names(config.authentication) and config.tls_ca is None:
        raise StartupError(
            "authentication by tls needs tls_ca, the authorities that sign the clients' certificates; set it"
        )
    check_ledgers(config)
    _check_ephemeral(config)


def _check_bytes(config: StandaloneConfig) -> None:
    for name, least in (
        ("publish_pending_bytes_max", config.max_message_bytes),
        ("connection_output_bytes_max", 1 << 16),
        ("function_packages_bytes_max", config.function_package_bytes_max),
    ):
        _require(getattr(config, name) >= least, config, name, f"at least {least}")


def largest(name: str) -> int:
    """The largest value of a numeric setting."""
    if name in _LARGEST:
        return _LARGEST[name]
    return BYTES_MAX if "bytes" in name or name.endswith("_ms") else NUMBER_MAX


def _check_largest(config: StandaloneConfig) -> None:
    for setting in fields(config):
        if setting.type == "int":
            most = largest(setting.name)
            _require(getattr(config, setting.name) <= most, config, setting.name, f"at most {most}")


def _check_tls(config: StandaloneConfig) -> None:
    if (config.tls_certificate is None) != (config.tls_key is None):
        raise StartupError("TLS needs both tls_certificate and tls_key; set both or none")
    if config.tls_require_client_certificate and (config.tls_ca is None or config.tls_certificate is None):
        raise StartupError("tls_require_client_certificate needs TLS and tls_ca to check against; set them")


def _check_ephemeral(config: StandaloneConfig) -> None:
    if config.ephemeral and (config.bookies or config.metadata_url):
        raise StartupError("ephemeral keeps nothing, so bookies make no sense; drop one of the two")
    if config.ephemeral and config.data_dir is not None:
        raise StartupError("ephemeral keeps nothing, so a data folder makes no sense; drop one of the two")


def _check_offloading(config: StandaloneConfig) -> None:
    for name in ("offload_threshold_bytes", "offload_threshold_seconds", "offload_deletion_lag_ms"):
        _require(getattr(config, name) >= UNLIMITED, config, name, "0 or more, or -1 for never")
    age_s = config.offload_max_age_seconds
    _require(is_max_age(age_s), config, "offload_max_age_seconds", f"0, or at least {MAX_AGE_LEAST_S}")
    _require(2 <= config.offload_busy_percent <= 100, config, "offload_busy_percent", "from 2 to 100")
    _require(0 <= config.offload_niceness <= 19, config, "offload_niceness", "from 0 to 19")
    _require(config.offload_bytes_per_s_max >= 0, config, "offload_bytes_per_s_max", "0 or more")
    _require(config.offload_read_cache_bytes >= 8 * MIB, config, "offload_read_cache_bytes", "at least 8 MiB")
    _require(config.offload_orphan_hours >= 1, config, "offload_orphan_hours", "at least 1")
    if not config.lake_catalog:
        return
    # A process without a catalog does not wait for this.
    from magnetar.lake.setup import check_catalog

    try:
        check_catalog(config.lake_catalog)
    except ValueError as error:
        raise StartupError(f"lake_catalog cannot be used: {error}") from error


def _check_listeners(config: StandaloneConfig) -> None:
    try:
        named = parse_listeners(config.advertised_listeners)
    except ValueError as error:
        raise StartupError(f"advertised_listeners: {error}; correct it") from error
    if config.internal_listener and config.internal_listener not in named:
        raise StartupError(
            f"internal_listener {config.internal_listener} is none of advertised_listeners; name one of those"
        )


def _check_storage(config: StandaloneConfig) -> None:
    _require(config.quarantine_grace_seconds >= 60, config, "quarantine_grace_seconds", "at least 60")
    full = config.disk_full_percent
    _require(1 <= full <= 100, config, "disk_full_percent", "from 1 to 100")
    _require(config.http_calls_per_second >= 0, config, "http_calls_per_second", "0 or more")
    for name, least in _SQL.items():
        _require(getattr(config, name) >= least, config, name, f"at least {least}")
    _require(1 <= config.disk_resume_percent <= full, config, "disk_resume_percent", f"from 1 to {full}")


def _check_otlp(config: StandaloneConfig) -> None:
    if not config.otlp_endpoint:
        return
    from magnetar.observability.otlp import check_endpoint

    try:
        check_endpoint(config.otlp_endpoint)
    except ValueError as error:
        raise StartupError(f"otlp_endpoint is {config.otlp_endpoint!r}: {error}") from error


def _check_ports(config: StandaloneConfig) -> None:
    if config.flight_sql and config.processes > 1:
        raise StartupError("flight_sql needs a broker of one process; set processes = 1, or drop flight_sql")
    taken: dict[int, str] = {}
    tls = ("broker_tls_port", "https_port") if config.tls_certificate is not None else ()
    flight = ("flight_sql_port",) if config.flight_sql else ()
    for name in ("broker_port", "http_port", *tls, *flight):
        port = getattr(config, name)
        if port and port in taken:
            raise StartupError(f"{taken[port]} and {name} are both {port}; choose two")
        taken[port] = name
    for text in names(config.functions_connect_ports):
        is_port = text.isdecimal() and text.isascii() and 0 < int(text) <= PORT_MAX
        _require(is_port, config, "functions_connect_ports", f"ports from 1 to {PORT_MAX}")


def _require(condition: bool, config: StandaloneConfig, name: str, rule: str) -> None:
    if not condition:
        raise StartupError(f"{name} is {getattr(config, name)!r}; it must be {rule}")
