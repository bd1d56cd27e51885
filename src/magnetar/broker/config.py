"""The configuration of a broker at start."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.base.query_bounds import QueryBounds
from magnetar.broker.balance.settings import BalanceSettings
from magnetar.broker.dedup.dedup_state import DedupLimits
from magnetar.broker.inactive.policy import InactivePolicy
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.broker.policies.creation import CreationRules
from magnetar.broker.policies.schema_rules import SchemaRules
from magnetar.ledger.api import Copies


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration of a broker at start."""

    cluster: str = "standalone"
    adopted: bool = False
    """Whether Apache Pulsar made the cluster: what it reads is stored in its form (metadata/adoption.py)."""
    advertised_host: str | None = None
    """Host in lookup answers; None: the address through which the client reached us."""
    trust_certs: str = ""
    """PEM file of the authorities that sign the certificates of the cluster's brokers; "": those that the
    system trusts."""
    message_bytes_max: int = 5 * 1024 * 1024
    """Largest message; announced to clients, which cut larger ones into chunks."""
    skip_lost: bool = False
    """Whether consumers skip entries that were lost to damage."""
    exposes_broker_metadata: bool = False
    """Whether clients that understand it are sent when an entry came and the index of its messages."""
    deduplication: bool = False
    """Whether topics deduplicate when neither they nor their namespace have a policy."""
    deduplication_limits: DedupLimits = field(default_factory=DedupLimits)
    """What is remembered of producers."""
    schemas: SchemaRules = field(default_factory=SchemaRules)
    """For topics without a policy."""
    offload_max_age_s: int = 0
    """Seconds after which a message must be in history, without a policy; 0: no limit."""
    compaction_threshold_bytes: int = 0
    """Bytes after which a topic is compacted, without a policy; 0: only on demand."""
    compaction_interval_s: float = 60.0
    """Seconds between two searches for topics to compact."""
    compaction_retain_null_key: bool = False
    """Whether compaction keeps messages without a key."""
    limits: Limits = field(default_factory=Limits)
    """Limits for topics and namespaces without policies."""
    limits_interval_s: float = 60.0
    """Between two rounds of expiry and backlog quotas (Pulsar's backlogQuotaCheckIntervalInSeconds)."""
    copies: Copies | None = None
    """How many bookies hold a topic's ledgers, without a policy; None: there is one bookie."""
    authorization: bool = True
    """False: every authenticated client may do everything."""
    metrics_roles: frozenset[str] = frozenset()
    """Roles that may read the metrics; superusers may anyway."""
    tenant_rates: bool = False
    """Whether administrators of a tenant may set the rates of its namespaces and topics."""
    creation: CreationRules = field(default_factory=CreationRules)
    """What clients may create, without a policy."""
    inactive: InactivePolicy = field(default_factory=InactivePolicy)
    """When an unused topic is deleted, without a policy."""
    transactions: bool = False
    """Whether clients may begin transactions."""
    transactions_open_max: int = 100_000
    """Open transactions of one coordinator; more are refused."""
    inactive_partitioned: bool = False
    """Whether a partitioned topic is deleted with the last of its partitions."""
    idle_topic_unload_s: int = 0
    """Seconds without use or work after which a topic is unloaded from memory; 0: never."""
    inactive_interval_s: float = 60.0
    """Seconds between two searches for unused topics and subscriptions."""
    subscription_expiration_minutes: int = 0
    """Minutes that a subscription stays without consumers, unless its namespace says otherwise; 0: for
    ever."""
    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Bytes of all connections that were read and are not durable; above it nothing is read."""
    connection_output_bytes_max: int = 4 * 1024 * 1024
    """Bytes that wait to be sent on one connection; above it its consumers get nothing."""
    output_bytes_max: int = 128 * 1024 * 1024
    """The same bound for all connections together; see `outputs.py` for each connection's part."""
    balance: BalanceSettings = field(default_factory=BalanceSettings)
    """How several brokers keep their load even."""
    tenants: TenantLimits = field(default_factory=TenantLimits)
    """What no tenant, role or machine may have more of."""
    connect_timeout_s: float = 10.0
    """Seconds after which a connection without a CONNECT is closed."""
    disk_full_percent: int = 97
    """Used share of the disk from which on no messages are taken; 100: only when it is full."""
    disk_resume_percent: int = 95
    """Used share of the disk below which they are taken again."""
    http_calls_per_second: int = 0
    """Admin calls of one address; 0: no limit."""
    websocket_enabled: bool = True
    """Whether the admin service accepts WebSockets."""
    metrics_topics_max: int = 3_000
    """Loaded topics up to which each has its own series in `/metrics`; with more, only namespaces have."""
    queries: QueryBounds = field(default_factory=QueryBounds)
    """What queries of SQL over HTTP may use."""
    retention_minutes: int = 0
    """How long consumed entries are kept by default; -1: for ever."""
    retention_mib: int = 0
    """How many MiB of them; -1: without limit."""
