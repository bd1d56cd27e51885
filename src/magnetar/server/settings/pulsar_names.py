"""Maps Pulsar's settings to ours. Source: Pulsar's ServiceConfiguration."""

from __future__ import annotations

from typing import Final

from magnetar.server.settings import pulsar_offload
from magnetar.server.settings.config import MIB

SAME: Final = {
    "advertisedAddress": "advertised_address",
    "advertisedListeners": "advertised_listeners",
    "allowOverrideEntryFilters": "entry_filters_override",
    "allowAutoSubscriptionCreation": "auto_subscription_creation",
    "allowAutoTopicCreation": "auto_topic_creation",
    "anonymousUserRole": "anonymous_role",
    "authenticateOriginalAuthData": "authenticate_original_auth_data",
    "authenticationRefreshCheckSeconds": "authentication_refresh_check_seconds",
    "backlogQuotaDefaultRetentionPolicy": "backlog_quota_policy",
    "bindAddress": "host",
    "transactionCoordinatorEnabled": "transactions",
    "functionsWorkerEnabled": "functions",
    "webSocketServiceEnabled": "websocket_enabled",
    "bookkeeperClientEnforceMinNumRacksPerWriteQuorum": "bookie_racks_enforced",
    "bookkeeperTLSCertificateFilePath": "bookie_tls_certificate",
    "bookkeeperTLSClientAuthentication": "bookie_tls",
    "bookkeeperTLSKeyFilePath": "bookie_tls_key",
    "bookkeeperTLSTrustCertsFilePath": "bookie_tls_ca",
    "bookkeeper_tlsHostnameVerificationEnabled": "bookie_tls_hostnames",
    "brokerDeduplicationEnabled": "deduplication",
    "brokerDeduplicationMaxNumberOfProducers": "deduplication_producers_max",
    "brokerDeduplicationProducerInactivityTimeoutMinutes": "deduplication_inactivity_minutes",
    "brokerDeduplicationEntriesInterval": "deduplication_snapshot_entries",
    "brokerDeduplicationSnapshotIntervalSeconds": "deduplication_snapshot_seconds",
    "brokerDeleteInactivePartitionedTopicMetadataEnabled": "inactive_partitioned_topic_deletion",
    "brokerDeleteInactiveTopicsEnabled": "inactive_topic_deletion",
    "brokerDeleteInactiveTopicsMode": "inactive_topic_mode",
    "autoSkipNonRecoverableData": "auto_skip_non_recoverable_data",
    "brokerClientTrustCertsFilePath": "broker_tls_ca",
    "brokerServicePort": "broker_port",
    "brokerServicePortTls": "broker_tls_port",
    "clusterName": "cluster",
    "defaultRetentionSizeInMB": "retention_mib",
    "defaultRetentionTimeInMinutes": "retention_minutes",
    "encryptionRequireOnProducer": "encryption_required",
    "entryFilterNames": "entry_filters",
    "internalListenerName": "internal_listener",
    "isAllowAutoUpdateSchemaEnabled": "schema_auto_update",
    "exposingBrokerEntryMetadataToClientEnabled": "expose_broker_metadata",
    "isSchemaValidationEnforced": "schema_validation_enforced",
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": "offload_threshold_bytes",
    "managedLedgerOffloadDeletionLagInMillis": "offload_deletion_lag_ms",
    "managedLedgerOffloadDeletionLagMs": "offload_deletion_lag_ms",
    "managedLedgerOffloadThresholdInBytes": "offload_threshold_bytes",
    "managedLedgerOffloadThresholdInSeconds": "offload_threshold_seconds",
    "maxMessageSize": "max_message_bytes",
    "maxUnackedMessagesPerBroker": "unacked_max_per_broker",
    "maxUnackedMessagesPerConsumer": "unacked_max_per_consumer",
    "maxUnackedMessagesPerSubscription": "unacked_max_per_subscription",
    "openIDAcceptedTimeLeewaySeconds": "openid_accepted_time_leeway_seconds",
    "openIDAllowedAudiences": "openid_audiences",
    "openIDAllowedTokenIssuers": "openid_issuers",
    "openIDCacheExpirationSeconds": "openid_cache_expiration_seconds",
    "openIDCacheRefreshAfterWriteSeconds": "openid_cache_refresh_after_write_seconds",
    "openIDKeyIdCacheMissRefreshSeconds": "openid_key_id_cache_miss_refresh_seconds",
    "openIDRequireIssuersUseHttps": "openid_require_issuers_use_https",
    "openIDRoleClaim": "openid_role_claim",
    "openIDTokenIssuerTrustCertsFilePath": "openid_trust_certificates",
    "proxyRoles": "proxy_roles",
    "schemaCompatibilityStrategy": "schema_compatibility",
    "subscriptionExpirationTimeMinutes": "subscription_expiration_minutes",
    "superUserRoles": "superuser_roles",
    "tokenAllowedClockSkewSeconds": "token_allowed_clock_skew_seconds",
    "tokenAudience": "token_audience",
    "tokenAuthClaim": "token_role_claim",
    "topicCompactionRetainNullKey": "compaction_retain_null_key",
    "webServicePort": "http_port",
    "webServicePortTls": "https_port",
}
"""Settings with the same meaning and unit."""

SCALED: Final = {
    "brokerServiceCompactionMonitorIntervalInSeconds": ("compaction_interval_seconds", 1),
    "brokerServiceCompactionThresholdInBytes": ("compaction_threshold_bytes", 1),
    "brokerDeleteInactiveTopicsFrequencySeconds": ("inactive_topic_interval_seconds", 1),
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": ("inactive_topic_seconds", 1),
    "bookkeeperClientMinNumRacksPerWriteQuorum": ("bookie_racks_min", 1),
    "brokerMaxConnections": ("connections_max", 1),
    "brokerMaxConnectionsPerIp": ("connections_max_per_address", 1),
    "backlogQuotaCheckIntervalInSeconds": ("limits_interval_seconds", 1),
    # The later of two that both are given counts: Pulsar prefers bytes.
    "backlogQuotaDefaultLimitGB": ("backlog_quota_bytes", 1 << 30),
    "backlogQuotaDefaultLimitBytes": ("backlog_quota_bytes", 1),
    "backlogQuotaDefaultLimitSecond": ("backlog_quota_seconds", 1),
    "dispatchThrottlingRatePerSubscriptionInByte": ("subscription_dispatch_rate_bytes", 1),
    "dispatchThrottlingRatePerSubscriptionInMsg": ("subscription_dispatch_rate_messages", 1),
    "dispatchThrottlingRatePerTopicInByte": ("dispatch_rate_bytes", 1),
    "dispatchThrottlingRatePerTopicInMsg": ("dispatch_rate_messages", 1),
    "managedLedgerDefaultAckQuorum": ("ledger_ack_quorum", 1),
    "managedLedgerDefaultEnsembleSize": ("ledger_ensemble_size", 1),
    "managedLedgerDefaultWriteQuorum": ("ledger_write_quorum", 1),
    "managedLedgerCacheSizeMB": ("cache_bytes", MIB),
    "managedLedgerMinLedgerRolloverTimeMinutes": ("ledger_rollover_min_seconds", 60),
    "maxConsumersPerSubscription": ("consumers_max_per_subscription", 1),
    "maxConsumersPerTopic": ("consumers_max_per_topic", 1),
    "maxMessagePublishBufferSizeInMB": ("publish_pending_bytes_max", MIB),
    "maxProducersPerTopic": ("producers_max_per_topic", 1),
    "maxPublishRatePerTopicInBytes": ("publish_rate_bytes", 1),
    "maxPublishRatePerTopicInMessages": ("publish_rate_messages", 1),
    "maxSubscriptionsPerTopic": ("subscriptions_max_per_topic", 1),
    "maxTopicsPerNamespace": ("topics_max_per_namespace", 1),
    "subscribeRatePeriodPerConsumerInSecond": ("subscribe_rate_period_seconds", 1),
    "subscribeThrottlingRatePerConsumer": ("subscribe_rate", 1),
    "tlsCertRefreshCheckDurationSec": ("credential_refresh_seconds", 1),
    "ttlDurationDefaultInSeconds": ("message_ttl_seconds", 1),
}
"""Numbers that count only from 1 on, with the factor from Pulsar's unit to ours."""

TLS: Final = {
    "tlsCertificateFilePath": "tls_certificate",
    "tlsKeyFilePath": "tls_key",
    "tlsTrustCertsFilePath": "tls_ca",
    "tlsRequireTrustedClientCertOnConnect": "tls_require_client_certificate",
    "tlsProtocols": "tls_protocols",
    "tlsCiphers": "tls_ciphers",
}
"""Settings that count only when TLS is served."""

SECRETS: Final = {
    "tokenSecretKey": "token_secret_key",
    "tokenPublicKey": "token_public_key",
    "basicAuthConf": "basic_users",
}
"""Settings that name a secret or hold it; they count only with authentication."""

AUTHENTICATION_PROVIDERS: Final = {
    "AuthenticationProviderTls": "tls",
    "AuthenticationProviderToken": "token",
    "AuthenticationProviderBasic": "basic",
    "AuthenticationProviderOpenID": "openid",
}
"""Our methods by the name of Pulsar's class, without its package."""

AUTHORIZATION_PROVIDER: Final = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"

MULTI_ROLES_PROVIDER: Final = "org.apache.pulsar.broker.authorization.MultiRolesTokenAuthorizationProvider"
"""The same, and all roles of a token count."""

FIXED: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "delayedDeliveryEnabled": "true",
    "enablePersistentTopics": "true",
    "subscriptionKeySharedEnable": "true",
    "subscriptionRedeliveryTrackerEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
}
"""Switches that cannot be changed here, with their fixed value."""

_READ_ELSEWHERE: Final = {
    "httpRequestsLimitEnabled",
    "httpRequestsMaxPerSecond",
    "maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
    "allowAutoTopicCreationType",
    "defaultNumPartitions",
    "exposeTopicLevelMetricsInPrometheus",
    "authenticationEnabled",
    "authenticationProviders",
    "authorizationEnabled",
    "authorizationProvider",
    "tlsAllowInsecureConnection",
    "tlsEnabled",
    "tlsEnabledWithKeyStore",
    "tokenAudienceClaim",
}

KNOWN: Final = frozenset({*SAME, *SCALED, *TLS, *SECRETS, *FIXED, *pulsar_offload.NAMES, *_READ_ELSEWHERE})
"""All settings of Pulsar that are read."""
