"""What can be set for `magnetar standalone`: each setting is a field of `StandaloneConfig`.

`loading.py` says where they may be set, `values.py` what may be written there, `checks.py` what must fit.
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
    """Address to listen on, for all ports. "0.0.0.0" takes every IPv4 interface."""
    plain_host: str = ""
    """Address of the ports without TLS, where it is another one, as "127.0.0.1"; empty: `host`."""
    advertised_address: str = ""
    """Host that clients are told to connect to; empty: `host`, or the machine's name when `host` takes
    every interface."""
    advertised_listeners: str = ""
    """Other addresses of this broker, separated by commas, `name:pulsar://host:port` each, also with the
    schemes pulsar+ssl, http and https. Clients get those of the listener that they name."""
    internal_listener: str = ""
    """Listener of clients that name none; empty: the first one."""
    broker_port: int = 6650
    """TCP port of the Pulsar protocol; 0 takes a free one."""
    http_port: int = 8080
    """TCP port of admin, lookup and metrics; 0 takes a free one."""
    data_dir: Path | None = None
    """Folder of everything durable; None: see `default_data_dir`. Without meaning when `ephemeral`."""
    ephemeral: bool = False
    """Keep nothing: metadata in memory, messages in a folder that goes with the process, no fsync."""
    cluster: str = "standalone"
    """Name of the cluster."""
    max_message_bytes: int = 5 * MIB
    """Largest message, told to clients on connecting. 1 KiB to 128 MiB."""
    cache_bytes: int = 64 * MIB
    """Newest entries that are kept in memory, over all topics. At least 1 MiB."""
    publish_pending_bytes_max: int = 64 * MIB
    """Bytes taken from producers and not yet durable, over all connections; beyond them the broker
    stops reading from producers. At least `max_message_bytes`."""
    connection_output_bytes_max: int = 4 * MIB
    """Bytes waiting to be sent on one connection; beyond them its consumers get no more. At least 64 KiB."""
    output_bytes_max: int = 128 * MIB
    """Bytes waiting to be sent on all connections, with reads under way for them. Clients that keep up go on,
    slow ones share what is left. At least 1 MiB."""
    segment_bytes: int = 256 * MIB
    """Size of a segment of the message store; so much disk is set aside at once. At least 1 MiB."""
    ledger_rollover_min_seconds: int = 600
    """Least age of a full ledger before the topic begins the next one. Disk space is freed ledger by ledger.
    At least 0."""
    quarantine_grace_seconds: int = 604_800
    """How long messages are kept that metadata does not name and nobody deleted, in time that this server
    runs and sees them. At least 60."""
    spare_segments: int = 2
    """Files of segments without living messages that are kept to be written over; 0: none."""
    prewrite_bytes_per_s: int = 48 * MIB
    """Rate at which future segment files are filled with zeros, while messages come slowly; 0: never."""
    retention_minutes: int = 0
    """How long messages stay after all subscriptions acknowledged them, where the namespace says
    nothing; -1: for ever. As in Pulsar, both retention settings must allow it to keep a message."""
    retention_mib: int = 0
    """MiB of acknowledged messages that a topic keeps, where the namespace says nothing; -1: no limit."""
    auto_skip_non_recoverable_data: bool = False
    """True: consumers skip entries that damage took. False: dispatch waits at them."""
    deduplication: bool = False
    """Whether topics drop messages that a producer sends again, when no policy says so or otherwise."""
    deduplication_producers_max: int = 10_000
    """Absent producers of a topic whose sequence ids are remembered. At least 1."""
    deduplication_inactivity_minutes: int = 360
    """How long sequence ids of absent producers are remembered. At least 1."""
    deduplication_snapshot_entries: int = 20_000
    """Entries after which a topic's sequence ids are stored. At least 1."""
    deduplication_snapshot_seconds: int = 120
    """Time after which they are stored, when policies say nothing."""
    schema_compatibility: str = "FULL"
    """Strategy of topics where policies say nothing: one of `schemas.compatibility.Strategy`."""
    schema_auto_update: bool = True
    """Whether clients may add schemas, where the namespace says nothing."""
    schema_validation_enforced: bool = False
    """Whether producers without a schema are refused everywhere where there is one."""
    auto_topic_creation: bool = True
    """Whether a producer or consumer creates a topic that does not exist."""
    auto_topic_partitions: int = 0
    """Partitions of a topic that is created automatically; 0: it is not partitioned. From 0 to 10,000."""
    auto_subscription_creation: bool = True
    """Whether a consumer creates a durable subscription that does not exist."""
    compaction_threshold_bytes: int = 0
    """Bytes since the last compaction at which a topic is compacted, where policies say nothing; 0: only when
    it is asked for."""
    compaction_interval_seconds: int = 60
    """Time between two checks of that threshold. At least 1."""
    compaction_retain_null_key: bool = False
    """Whether compaction keeps messages without a key."""
    expose_broker_metadata: bool = False
    """Whether clients that ask for it are told when an entry was stored and the index of its messages
    (PIP-70); our own client and Spark are always."""
    inactive_topic_deletion: bool = False
    """Whether topics that nobody uses are deleted, where policies say nothing; with a configuration file of
    Pulsar's it is as that says, and true where it says nothing."""
    inactive_topic_mode: str = DeleteMode.NO_SUBSCRIPTIONS.value
    """Which topics without clients may be deleted: one of DeleteMode."""
    inactive_topic_seconds: int = 60
    """How long a topic must be unused before it is deleted. At least 1."""
    inactive_partitioned_topic_deletion: bool = False
    """Whether a partitioned topic is deleted with the last of its partitions."""
    idle_topic_unload_seconds: int = 600
    """How long a topic without a backlog must be unused before it leaves the memory; the next use loads it.
    0: never."""
    inactive_topic_interval_seconds: int = 60
    """Time between two checks for such topics. At least 1."""
    metrics_topics_max: int = 3_000
    """Loaded topics up to which each has series of its own in `/metrics`; of more, the sums of namespaces are
    shown. 0: always those."""
    disk_full_percent: int = 97
    """Used share of the data folder's disk, in percent, from which no messages are accepted. From 1 to 100;
    100: only a full disk stops them."""
    disk_room_percent: int = 95
    """Used share of that disk, in percent, below which messages are accepted again. From 1 to
    `disk_full_percent`."""
    http_calls_per_second: int = 0
    """Calls of the admin API that one address may make in a second; further ones are answered 429. 0: no
    limit."""
    websocket_enabled: bool = True
    """Whether WebSockets are served on the ports of the admin API."""
    insecure: bool = False
    """Let other machines do everything: needed for a `host` that they can reach, without authentication."""
    tls_certificate: Path | None = None
    """Certificate chain, PEM. With it and `tls_key`, TLS is served besides the plain ports."""
    tls_key: Path | None = None
    """Private key of the certificate, PEM."""
    tls_ca: Path | None = None
    """Certificates, PEM, of those who sign clients' certificates; None: clients are not asked for one."""
    tls_require_client_certificate: bool = False
    """Whether TLS clients without a valid certificate are refused; else they may show something else."""
    tls_protocols: str = ""
    """Versions of TLS that are served, separated by commas: TLSv1.2, TLSv1.3. Empty: both."""
    tls_ciphers: str = ""
    """Cipher suites that are served, separated by commas, by the names of IANA or OpenSSL. Empty: OpenSSL's
    choice. Of TLS 1.3 all three or none."""
    broker_tls_port: int = 6651
    """TCP port of the Pulsar protocol over TLS; 0 takes a free one."""
    https_port: int = 8443
    """TCP port of admin, lookup and metrics over TLS; 0 takes a free one."""
    authentication: str = ""
    """Providers, separated by commas, of `tls`, `token`, `basic` and `openid`, tried in this order; empty:
    everybody may do everything."""
    authentication_refresh_check_seconds: int = 60
    """Time between two looks for clients whose credentials have ended. At least 1."""
    credential_refresh_seconds: int = 60
    """Time between two looks whether files of certificates, keys, trust or users have changed; SIGHUP has
    them read at once. At least 1."""
    authorization: bool = True
    """False: whoever proves who he is may do everything; grants are not asked for."""
    anonymous_role: str = ""
    """Role of clients without credentials; empty: they are refused."""
    superuser_roles: str = ""
    """Roles, separated by commas, that may do everything."""
    proxy_roles: str = ""
    """Roles, separated by commas, of proxies: they speak for their clients, never for themselves."""
    authenticate_original_auth_data: bool = True
    """Whether proxies must forward their clients' credentials; else their word is taken."""
    token_secret_key: SecretSource | None = None
    """File with, or `data:;base64,` and, the secret, at least 32 bytes, of tokens signed by HMAC."""
    token_public_key: SecretSource | None = None
    """File with, or `data:;base64,` and, the public key, PEM or DER, of tokens signed by RSA or EC."""
    token_role_claim: str = "sub"
    """Claim of a token that names the role."""
    token_multiple_roles: bool = False
    """Whether all roles count where that claim, of a token of ours or of an issuer's, is a list: what one of
    them may do, the client may. If not, the first one is its role."""
    token_audience: str = ""
    """What a token's `aud` must hold; empty: it is not looked at."""
    token_revoked_ids_file: Path | None = None
    """File of ids (`jti`), one a line, of tokens that count no more, ours or an issuer's."""
    token_allowed_clock_skew_seconds: int = 60
    """How far the clocks of the broker and of who issues tokens may differ."""
    openid_issuers: str = ""
    """URLs, separated by commas, of the OpenID issuers whose tokens are taken."""
    openid_audiences: str = ""
    """What a token's `aud` must hold one of, separated by commas."""
    openid_trust_certificates: Path | None = None
    """Whom to trust when an issuer is asked for its keys, PEM; None: whom the system trusts."""
    openid_role_claim: str = "sub"
    """Claim of an issuer's token that names the role."""
    openid_accepted_time_leeway_seconds: int = 0
    """How far the clocks of the broker and of an issuer may differ."""
    openid_require_issuers_use_https: bool = True
    """Whether issuers must be asked over HTTPS; if not, plain HTTP works for issuers on this machine."""
    openid_cache_refresh_after_write_seconds: int = 64_800
    """Age at which an issuer's keys are fetched anew."""
    openid_cache_expiration_seconds: int = 86_400
    """Age at which an issuer's keys count no more."""
    openid_key_id_cache_miss_refresh_seconds: int = 300
    """Time between two fetches of keys because a token names one that is not known."""
    basic_users: SecretSource | None = None
    """htpasswd file of users and password hashes, or `data:;base64,` and its content."""
    log_level: str = "info"
    """One of `checks.LOG_LEVELS`."""
    log_json: bool = False
    """One JSON object for each record of the log."""
    ready_file: Path | None = None
    """Written when the process is ready, for programs that wait for it; see `banner.write_ready_file`."""


def names(text: str) -> tuple[str, ...]:
    """The names in a setting that lists them, separated by commas."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def default_data_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_DATA_HOME/magnetar`, or `~/.local/share/magnetar`. Source: XDG base directories."""
    home = environment.get("XDG_DATA_HOME", "")
    # The specification says that a relative path there is to be ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return base / "magnetar"
