"""The settings of `magnetar standalone`: each is a field of `StandaloneConfig`.

`loading.py` reads their sources, `setting_values.py` parses values, `checks.py` checks them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.auth.secrets import SecretSource
from magnetar.broker.inactive.policy import DeleteMode
from magnetar.server.settings.ledger_settings import LedgerSettings

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneConfig(LedgerSettings):
    """Settings of one standalone process. Made by `load`, which checks them."""

    host: str = "127.0.0.1"
    """Address to listen on, for all ports; `0.0.0.0` listens on every IPv4 interface."""
    plain_host: str = ""
    """Address of the ports without TLS, when it differs from `host`, such as `127.0.0.1`; empty: `host`."""
    advertised_address: str = ""
    """Host that clients are told to connect to; empty: `host`, or the machine's name when `host` is every
    interface."""
    advertised_listeners: str = ""
    """Further addresses of this broker, `name:pulsar://host:port` each, separated by commas; also with
    `pulsar+ssl`, `http`, `https`. A client that names a listener gets its addresses."""
    internal_listener: str = ""
    """Listener for clients that name none; empty: the first one."""
    broker_port: int = 6650
    """Port of the Pulsar protocol; 0 takes a free one. From 0 to 65535."""
    http_port: int = 8080
    """Port of admin, lookup and metrics; 0 takes a free one. From 0 to 65535."""
    processes: int = 1
    """Number of broker processes that share the ports; 1: no others. From 1 to 64."""
    processes_one_port: bool = True
    """True: clients without TLS reach every process of `processes` through the shared port. False: they are
    sent to the own port of the process that serves the topic."""
    data_dir: Path | None = None
    """Folder of all data that is kept."""
    ephemeral: bool = False
    """True: keep nothing after the process and never sync, for tests and experiments."""
    cluster: str = "standalone"
    """Name of the cluster."""
    max_message_bytes: int = 5 * MIB
    """Size of the largest message, in bytes. From 1 KiB to 128 MiB."""
    cache_bytes: int = 64 * MIB
    """Memory for the newest entries, over all topics. At least 1 MiB."""
    publish_pending_bytes_max: int = 64 * MIB
    """Bytes that were read from producers and are not durable; above it the broker stops reading from
    producers. At least `max_message_bytes`."""
    connection_output_bytes_max: int = 4 * MIB
    """Bytes that wait to be sent on one connection; above it the consumers of that connection get no more
    entries. At least 64 KiB."""
    output_bytes_max: int = 128 * MIB
    """Bytes that wait to be sent on all connections, with reads under way for them; clients that keep up go
    on, slow ones share what is left. At least 1 MiB."""
    segment_bytes: int = 256 * MIB
    """Size of a segment file of the message store; the disk space is allocated at once. From 1 MiB to
    4,294,967,295."""
    ledger_rollover_min_seconds: int = 600
    """Least age, in seconds, of a ledger of 2 GiB or 5 million entries before the topic begins the next one.
    Disk space is freed ledger by ledger. At least 0."""
    quarantine_grace_seconds: int = 604_800
    """Time, in seconds, for which quarantined ledgers are kept: those that metadata does not name and that
    were not deleted on purpose. Only time counts in which the server runs and sees them. At least 60."""
    spare_segments: int = 2
    """Number of segment files without living messages that are kept to be written over, which syncs faster.
    At least 0."""
    prewrite_bytes_per_s: int = 48 * MIB
    """Rate, in bytes per second, at which future segment files are filled with zeros, while no spare file is
    left and messages arrive at less than half of this rate; 0: never. At least 0."""
    retention_minutes: int = 0
    """Time, in minutes, for which acknowledged messages stay, when the namespace has no retention policy; -1:
    without limit. At least -1."""
    retention_mib: int = 0
    """MiB of acknowledged messages that a topic keeps, when the namespace has no retention policy; -1:
    without limit. A message is kept when both settings allow it. At least -1."""
    auto_skip_non_recoverable_data: bool = False
    """True: consumers skip entries that were lost to damage. False: dispatch waits at them and reports the
    reason, until they are given up (`magnetar storage accept-loss`, `magnetar doctor storage salvage`). It
    can change while the broker runs."""
    deduplication: bool = False
    """True: topics drop messages that a producer sends again, unless the topic's or namespace's policy says
    otherwise."""
    deduplication_producers_max: int = 10_000
    """Number of absent producers of a topic whose sequence ids are remembered. At least 1."""
    deduplication_inactivity_minutes: int = 360
    """Time, in minutes, for which sequence ids of absent producers are remembered. At least 1."""
    deduplication_snapshot_entries: int = 20_000
    """Number of entries after which a topic's sequence ids are stored. At least 1."""
    deduplication_snapshot_seconds: int = 120
    """Time, in seconds, after which a topic's sequence ids are stored, when policies say nothing; 0 or -1:
    never by time. At least -1."""
    schema_compatibility: str = "FULL"
    """Compatibility strategy of topics, when policies say nothing."""
    schema_auto_update: bool = True
    """True: clients may add schemas, when the namespace's policy says nothing."""
    schema_validation_enforced: bool = False
    """True: producers without a schema are refused on every topic that has one."""
    auto_topic_creation: bool = True
    """True: a producer or consumer creates a topic that does not exist."""
    auto_topic_partitions: int = 0
    """Partitions of a topic that is created automatically; 0: it is not partitioned. From 0 to 10000."""
    auto_subscription_creation: bool = True
    """True: a consumer creates a durable subscription that does not exist."""
    compaction_threshold_bytes: int = 0
    """Bytes since the last compaction at which a topic is compacted, when policies say nothing; 0: on request
    only. At least 0."""
    compaction_interval_seconds: int = 60
    """Time, in seconds, between two checks of `compaction_threshold_bytes`. At least 1."""
    compaction_retain_null_key: bool = False
    """True: compaction keeps messages without a key."""
    expose_broker_metadata: bool = False
    """True: clients that ask for it get the time at which an entry was stored, and the index of its messages;
    Magnetar's client and Spark always get them."""
    inactive_topic_deletion: bool = False
    """True: unused topics are deleted, when policies say nothing. With Pulsar's configuration file the
    default is true."""
    inactive_topic_mode: str = DeleteMode.NO_SUBSCRIPTIONS.value
    """Which topics without clients may be deleted; also `delete_when_subscriptions_caught_up`."""
    inactive_topic_seconds: int = 60
    """Time, in seconds, for which a topic must be unused before it is deleted. At least 1."""
    inactive_partitioned_topic_deletion: bool = False
    """True: a partitioned topic is deleted with the last of its partitions."""
    transactions: bool = False
    """True: clients may begin transactions."""
    transactions_open_max: int = 100_000
    """Number of open transactions of one coordinator; further ones are refused. At least 1."""
    idle_topic_unload_seconds: int = 600
    """Time, in seconds, for which a topic without a backlog must be unused before it is unloaded. The next
    use loads it, with counters at 0. 0: never. At least 0."""
    inactive_topic_interval_seconds: int = 60
    """Time, in seconds, between two checks for unused topics. At least 1."""
    metrics_topics_max: int = 3_000
    """Number of loaded topics up to which each has its own series in `/metrics`; above it `/metrics` has sums
    by namespace. 0: always sums. At least 0."""
    disk_full_percent: int = 97
    """Used share, in percent, of the data folder's disk from which no messages are accepted; 100: only a full
    disk stops them. From `disk_resume_percent` to 100."""
    disk_resume_percent: int = 95
    """Used share, in percent, of the data folder's disk below which messages are accepted again. From 1 to
    `disk_full_percent`."""
    http_calls_per_second: int = 0
    """Calls per second of the admin API from one address, probes and `/metrics` not counted; further calls
    are answered 429. 0: no limit. Pulsar's `httpRequestsMaxPerSecond` is used if `httpRequestsLimitEnabled`
    is true. At least 0."""
    websocket_enabled: bool = True
    """True: the ports of the admin API serve WebSockets."""
    functions: bool = True
    """True: the admin API takes functions and packages, and functions run beside the broker. No process runs
    before the first one is created."""
    functions_unconfined: bool = False
    """True: the code of functions may read and write what the server can. False: it is kept from the server's
    files; with authentication it does not run where the system cannot do that."""
    functions_start_processes: bool = False
    """True: confined code of functions may start programs and processes; false: it may start threads
    alone."""
    functions_connect_ports: str = ""
    """Ports, separated by commas, to which confined code of functions may connect over TCP, besides the
    broker's; empty: all. Needs Linux 6.7."""
    function_instances_max: int = 1_024
    """Largest number of instances of all functions together, running or stopped; each is a process. From
    1."""
    tenant_function_instances_max: int = 128
    """Largest number of instances of a tenant's functions, running or stopped. From 1."""
    function_package_bytes_max: int = 128 * MIB
    """Size of the largest file of a function or package, in bytes. From 1 MiB to
    `function_packages_bytes_max`."""
    function_packages_bytes_max: int = 4096 * MIB
    """Bytes of all files of functions and packages together; further ones are refused. At least
    `function_package_bytes_max`."""
    insecure: bool = False
    """True: clients of other machines may do everything; needed without authentication for a `host` that
    other machines can reach."""
    tls_certificate: Path | None = None
    """Certificate chain, PEM; with it and `tls_key`, TLS is served besides the plain ports."""
    tls_key: Path | None = None
    """Private key of the certificate, PEM."""
    tls_ca: Path | None = None
    """PEM file of the authorities that sign clients' certificates; empty: clients are not asked for one."""
    broker_tls_ca: Path | None = None
    """PEM file of the authorities that sign the certificates of the cluster's brokers, for calls from one to
    another; empty: those that the system trusts."""
    tls_require_client_certificate: bool = False
    """True: TLS clients without a valid certificate are refused."""
    tls_protocols: str = ""
    """Versions of TLS that are served: `TLSv1.2`, `TLSv1.3`."""
    tls_ciphers: str = ""
    """Cipher suites by IANA's or OpenSSL's names, separated by commas; of TLS 1.3 all three or none."""
    broker_tls_port: int = 6651
    """Port of the Pulsar protocol over TLS; 0 takes a free one. From 0 to 65535."""
    https_port: int = 8443
    """Port of admin, lookup and metrics over TLS; 0 takes a free one. From 0 to 65535."""
    authentication: str = ""
    """Providers, separated by commas, out of `tls`, `token`, `basic`, `openid`, tried in this order; empty:
    no authentication, every client may do everything."""
    authentication_refresh_check_seconds: int = 60
    """Time, in seconds, between two checks for clients whose credentials have expired. At least 1."""
    credential_refresh_seconds: int = 60
    """Time, in seconds, between two checks for changed files of certificates, keys, trust or users; SIGHUP
    makes the broker read them at once. At least 1."""
    authorization: bool = True
    """True: grants are checked; false: every authenticated client may do everything."""
    tenant_rates: bool = False
    """True: administrators of a tenant may set publish, dispatch, subscribe and replicator rates of its
    namespaces and topics, as in newer versions of Pulsar; false: only superusers may."""
    anonymous_role: str = ""
    """Role of clients without credentials; empty: they are refused."""
    superuser_roles: str = ""
    """Roles, separated by commas, that may do everything."""
    proxy_roles: str = ""
    """Roles, separated by commas, of proxies, which act for their clients and never for themselves."""
    authenticate_original_auth_data: bool = True
    """True: proxies must forward their clients' credentials; false: the broker trusts the role that the proxy
    names."""
    token_secret_key: SecretSource | None = None
    """File with the secret, at least 32 bytes, of tokens signed by HMAC."""
    token_public_key: SecretSource | None = None
    """File with the public key, PEM or DER, of tokens signed by RSA or EC."""
    token_role_claim: str = "sub"
    """Claim of a token that names the role."""
    token_multiple_roles: bool = False
    """True: all roles count when a token's claim is a list of roles; false: the first one does."""
    token_audience: str = ""
    """What a token's `aud` must hold; empty: `aud` is not checked."""
    token_revoked_ids_file: Path | None = None
    """File with ids (`jti`) of revoked tokens, one per line, for tokens of `token` and `openid`."""
    token_allowed_clock_skew_seconds: int = 60
    """Largest difference, in seconds, between the clocks of the broker and of a token's issuer. At least
    0."""
    openid_issuers: str = ""
    """URLs, separated by commas, of the OpenID issuers whose tokens are accepted."""
    openid_audiences: str = ""
    """Audiences, separated by commas; a token's `aud` must hold one of them."""
    openid_trust_certificates: Path | None = None
    """PEM file of the authorities that are trusted when keys are fetched from an issuer; empty: those that
    the system trusts."""
    openid_role_claim: str = "sub"
    """Claim of an issuer's token that names the role."""
    openid_accepted_time_leeway_seconds: int = 0
    """Largest difference, in seconds, between the clocks of the broker and of an issuer. At least 0."""
    openid_require_issuers_use_https: bool = True
    """True: issuers must have HTTPS; false: plain HTTP works for issuers on this machine."""
    openid_cache_refresh_after_write_seconds: int = 64_800
    """Age, in seconds, at which an issuer's keys are fetched again. At least 1."""
    openid_cache_expiration_seconds: int = 86_400
    """Age, in seconds, at which an issuer's keys are no longer used. At least 1."""
    openid_key_id_cache_miss_refresh_seconds: int = 300
    """Least time, in seconds, between two fetches of keys because a token names an unknown key. At least
    1."""
    basic_users: SecretSource | None = None
    """Htpasswd file of users and password hashes."""
    log_level: str = "info"
    """Least level of log records: `debug`, `info`, `warning`, `error`."""
    log_json: bool = False
    """True: each log record is a JSON object, with the name of its event."""
    ready_file: Path | None = None
    """File that is written when the process is ready: JSON with `pid`, `broker_url`, `http_url`, `data_dir`,
    and with TLS `broker_tls_url`, `https_url`."""

    @property
    def holds_secrets(self) -> bool:
        """Whether the process has keys, passwords or tokens in memory, its own or those of clients."""
        return bool(self.authentication) or self.tls_certificate is not None or self.holds_bookie_secrets


def names(text: str) -> tuple[str, ...]:
    """The names in a setting that lists them, separated by commas."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def default_data_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_DATA_HOME/magnetar`, or `~/.local/share/magnetar`. Source: XDG base directories."""
    home = environment.get("XDG_DATA_HOME", "")
    # The specification says that a relative path there is to be ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return base / "magnetar"
