"""Pulsar's own files and variables as a configuration of ours."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.auth.secrets import Inline
from magnetar.base.errors import StartupError
from magnetar.broker.inactive.policy import DeleteMode, InactivePolicy
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.limits.limits import Limits
from magnetar.server.settings import pulsar_names
from magnetar.server.settings.broker_settings import broker_config
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.limit_settings import LimitSettings, default_limits, tenant_limits
from magnetar.server.settings.loading import Loaded, load
from magnetar.server.settings.setting_values import KEYS

PROVIDERS = ",".join(
    f"org.apache.pulsar.broker.authentication.AuthenticationProvider{kind}"
    for kind in ("Tls", "Token", "Basic")
)


def loaded(tmp_path: Path, text: str, **environment: str) -> Loaded:
    file = tmp_path / "standalone.conf"
    file.write_text(text)
    return load({"ephemeral": True}, file=file, environment=environment)


def test_every_counterpart_exists() -> None:
    ours = [*pulsar_names.SAME.values(), *pulsar_names.TLS.values(), *pulsar_names.SECRETS.values()]
    ours += [key for key, _ in pulsar_names.SCALED.values()]
    assert set(ours) <= set(KEYS)


def test_names_and_units(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "brokerServicePort=1\nwebServicePort=2\nbindAddress=localhost\nclusterName=c\nmaxMessageSize=1024000\n"
        "defaultRetentionTimeInMinutes=-1\nmanagedLedgerCacheSizeMB=128\nallowAutoTopicCreation=false\n"
        "brokerDeduplicationEnabled=true\nadvertisedAddress=\nmaxMessagePublishBufferSizeInMB=-1\n"
        "advertisedListeners=a:pulsar://h:1,b:pulsar://h:2\ninternalListenerName=b\n",
    ).config
    assert (config.broker_port, config.http_port, config.host, config.cluster) == (1, 2, "localhost", "c")
    assert (config.max_message_bytes, config.retention_minutes, config.cache_bytes) == (
        1024000,
        -1,
        128 << 20,
    )
    assert not config.auto_topic_creation
    assert config.deduplication
    assert config.advertised_address == ""
    assert config.publish_pending_bytes_max == 64 << 20
    assert config.internal_listener == "b"


def test_variables_win_over_the_file_and_ours_over_pulsars(tmp_path: Path) -> None:
    loaded_one = loaded(
        tmp_path,
        "clusterName=file\nbrokerServicePort=1\nwebServicePort=2\nmaxMessageSize=2048\n",
        clusterName="plain",
        brokerServicePort="3",
        PULSAR_PREFIX_brokerServicePort="4",
        MAGNETAR_HTTP_PORT="5",
        unrelatedName="x",
    )
    config = loaded_one.config
    assert (config.cluster, config.broker_port, config.http_port) == ("plain", 4, 5)
    assert config.max_message_bytes == 2048


def test_variables_need_no_file() -> None:
    assert load({"ephemeral": True}, environment={"PULSAR_PREFIX_clusterName": "c"}).config.cluster == "c"
    silent = load({"ephemeral": True}, environment={"npm_config_userAgent": "x", "someThing": "y"})
    assert silent.notes == silent.details == ()


def test_what_has_no_counterpart_is_told_once(tmp_path: Path) -> None:
    told = loaded(tmp_path, "clusterName=c\nzookeeperServers=z\nloadBalancerEnabled=false\nnumIOThreads=\n")
    counts = "1 settings taken, 2 have no counterpart here (--log-level debug names them)"
    assert told.notes == (f"configuration {tmp_path}/standalone.conf: {counts}",)
    assert told.details[0].endswith("without counterpart: loadBalancerEnabled, zookeeperServers")


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ("httpRequestsMaxPerSecond=5\n", 0),
        ("httpRequestsLimitEnabled=true\n", 100),
        ("httpRequestsLimitEnabled=true\nhttpRequestsMaxPerSecond=2.5\n", 2),
        ("httpRequestsLimitEnabled=true\nhttpRequestsMaxPerSecond=0.1\n", 1),
    ],
)
def test_calls_over_http_have_a_rate_where_it_is_switched_on(tmp_path: Path, given: str, rate: int) -> None:
    assert loaded(tmp_path, given).config.http_calls_per_second == rate


def test_switches_that_stand_otherwise_are_named(tmp_path: Path) -> None:
    told = loaded(tmp_path, "delayedDeliveryEnabled=false\nacknowledgmentAtBatchIndexLevelEnabled=true\n")
    assert told.notes[1:] == ("here delayedDeliveryEnabled is always true",)


@pytest.mark.parametrize(("given", "near"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_every_interface_without_authentication_is_not_taken_from_a_file(
    tmp_path: Path, given: str, near: str
) -> None:
    told = loaded(tmp_path, f"bindAddress={given}\n".replace("::", "\\:\\:"))
    assert told.config.host == near
    assert "--insecure lets other machines in" in told.notes[-1]
    open_to_all = load(
        {"ephemeral": True, "insecure": True}, file=tmp_path / "standalone.conf", environment={}
    )
    assert open_to_all.config.host == given


def test_authentication_by_class_names(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "bindAddress=0.0.0.0\nauthenticationEnabled=true\nauthorizationEnabled=true\nbrokerServicePortTls=6651\n"
        f"authenticationProviders={PROVIDERS}\ntlsTrustCertsFilePath=ca.pem\ntlsCertificateFilePath=c.pem\n"
        "tlsKeyFilePath=k.pem\ntokenSecretKey=file:///keys/secret.key\nsuperUserRoles=a, b\n"
        "tokenAudienceClaim=aud\nanonymousUserRole=anonymous\n",
        PULSAR_EXTRA_OPTS="-Xmx1g -Dpulsar.auth.basic.conf=conf/.htpasswd",
    ).config
    assert config.authentication == "tls,token,basic"
    assert (config.tls_certificate, config.tls_ca) == (Path("c.pem"), Path("ca.pem"))
    assert config.token_secret_key == Path("/keys/secret.key")
    assert config.basic_users == Path("conf/.htpasswd")
    assert (config.superuser_roles, config.anonymous_role) == ("a, b", "anonymous")
    assert config.authorization
    assert config.host == "0.0.0.0"


def test_all_roles_of_a_token_count_by_pulsars_provider_for_them(tmp_path: Path) -> None:
    package = "org.apache.pulsar.broker.authorization"
    providers = {"MultiRolesTokenAuthorizationProvider": True, "PulsarAuthorizationProvider": False}
    for name, several in providers.items():
        config = loaded(
            tmp_path,
            f"authenticationEnabled=true\nauthenticationProviders={PROVIDERS}\n"
            f"authorizationEnabled=true\nauthorizationProvider={package}.{name}\n",
        ).config
        assert config.token_multiple_roles is several


def test_files_of_credentials_are_looked_at_as_often_as_pulsar_says(tmp_path: Path) -> None:
    for text, seconds in (("300", 300), ("0", 60)):
        said = f"tlsCertRefreshCheckDurationSec={text}\n"
        assert loaded(tmp_path, said).config.credential_refresh_seconds == seconds


def test_without_tls_its_files_and_its_provider_do_not_count(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        f"authenticationEnabled=true\nauthenticationProviders={PROVIDERS}\ntlsCertificateFilePath=c.pem\n",
    ).config
    assert config.authentication == "token,basic"
    assert not config.authorization, "it has a switch of its own, which is off"
    assert config.tls_certificate is None


def test_the_providers_of_a_switched_off_authentication_are_not_looked_at(tmp_path: Path) -> None:
    assert (
        loaded(tmp_path, "authenticationEnabled=false\nauthenticationProviders=false\n").config.authentication
        == ""
    )


def test_secrets_stand_in_files_urls_or_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"k")
    data = base64.b64encode(b"s" * 40).decode()
    forms = {
        str(file): file,
        f"file://{file}": file,
        f"data:;base64,{data}": Inline(b"s" * 40),
        data: Inline(b"s" * 40),
    }
    for text, source in forms.items():
        config = loaded(
            tmp_path,
            f"authenticationEnabled=true\nauthenticationProviders={PROVIDERS}\ntokenSecretKey={text}\n",
        ).config
        assert config.token_secret_key == source
        assert "sss" not in repr(config)


_CLASSES = "org.apache.pulsar.broker.authentication"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brokerServicePort=x", "key brokerServicePort: 'x' is not a whole number"),
        ("managedLedgerCacheSizeMB=x", "key managedLedgerCacheSizeMB: 'x' is not a whole number"),
        ("authorizationEnabled=true", "needs authenticationEnabled"),
        ("authenticationEnabled=true", "needs authenticationProviders"),
        ("authenticationEnabled=true\nauthenticationProviders=org.X", "provider org.X is not offered"),
        (
            f"authenticationEnabled=true\nauthenticationProviders={_CLASSES}.AuthenticationProviderSasl",
            "Sasl is not",
        ),
        (
            f"authenticationEnabled=true\nauthenticationProviders={_CLASSES}.AuthenticationProviderAthenz",
            "Athenz is not",
        ),
        ("authenticationEnabled=true\nauthorizationProvider=org.X", "authorizationProvider org.X is not"),
        (
            f"authenticationEnabled=true\nauthenticationProviders={PROVIDERS}\ntokenAudienceClaim=x",
            "only aud",
        ),
        (
            f"authenticationEnabled=true\nauthenticationProviders={PROVIDERS}\ntokenSecretKey=data:x",
            "is not a file",
        ),
        ("brokerServicePort=\nbrokerServicePortTls=6651", "TLS alone is not offered; give brokerServicePort"),
        ("tlsEnabled=true\ntlsEnabledWithKeyStore=true", "key stores are not read"),
        ("brokerServicePortTls=6651\ntlsKeyFilePath=k", "both tls_certificate and tls_key"),
        ("advertisedListeners=a", "advertised_listeners: 'a' is not name:scheme"),
        ("internalListenerName=a", "internal_listener a is none of advertised_listeners"),
        ("clusterName=\\u1", "four hexadecimal digits"),
    ],
)
def test_what_cannot_be_taken_ends_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(StartupError) as caught:
        loaded(tmp_path, text)
    assert said in str(caught.value)


def test_issuers_proxies_and_renewal(tmp_path: Path) -> None:
    provider = "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID"
    config = loaded(
        tmp_path,
        f"authenticationEnabled=true\nauthenticationProviders={provider}\nproxyRoles=proxy\n"
        "authenticateOriginalAuthData=false\nauthenticationRefreshCheckSeconds=30\n"
        "openIDAllowedTokenIssuers=https://a.test,https://b.test\nopenIDAllowedAudiences=us\n"
        "openIDRequireIssuersUseHttps=true\ntokenAllowedClockSkewSeconds=0\n",
    ).config
    assert (config.authentication, config.proxy_roles) == ("openid", "proxy")
    assert not config.authenticate_original_auth_data
    assert (config.authentication_refresh_check_seconds, config.token_allowed_clock_skew_seconds) == (30, 0)
    assert (config.openid_issuers, config.openid_audiences) == ("https://a.test,https://b.test", "us")


def test_limits_and_issuers(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "backlogQuotaDefaultLimitGB=10\nbacklogQuotaDefaultLimitSecond=-1\nttlDurationDefaultInSeconds=60\n"
        "backlogQuotaDefaultRetentionPolicy=consumer_backlog_eviction\nmaxProducersPerTopic=3\n"
        "maxUnackedMessagesPerConsumer=0\ndispatchThrottlingRatePerTopicInMsg=-1\nproxyRoles=p\n"
        "authenticationEnabled=true\nopenIDAllowedTokenIssuers=https://i\nopenIDAllowedAudiences=a\n"
        "authenticationProviders=org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID\n",
    ).config
    limits = default_limits(config)
    assert limits.quotas == (BacklogQuota(QuotaKind.SIZE, 10 << 30, QuotaPolicy.EVICT),)
    assert (limits.ttl_s, limits.producers_max, limits.unacked_max_per_consumer) == (60, 3, 0)
    assert not limits.dispatch_rate.limits
    assert (config.authentication, config.openid_issuers, config.proxy_roles) == ("openid", "https://i", "p")


@pytest.mark.parametrize(
    ("share", "most", "percent"), [("0.16", 1000, 16), ("0.001", 1000, 1), ("2", 1000, 100), ("0", 0, 16)]
)
def test_what_a_broker_may_have_unacknowledged(tmp_path: Path, share: str, most: int, percent: int) -> None:
    name = "maxUnackedMessagesPerSubscriptionOnBrokerBlocked"
    limits = tenant_limits(loaded(tmp_path, f"maxUnackedMessagesPerBroker=1000\n{name}={share}\n").config)
    assert (limits.unacked_max, limits.unacked_blocked_percent) == (most, percent)


def test_a_share_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="OnBrokerBlocked: 'some' is not a number"):
        loaded(tmp_path, "maxUnackedMessagesPerSubscriptionOnBrokerBlocked=some\n")


def test_the_defaults_of_settings_are_those_of_the_room() -> None:
    limits = default_limits(LimitSettings())
    assert replace(limits, subscribe_rate=Limits().subscribe_rate) == Limits()
    assert not limits.subscribe_rate.limits


@pytest.mark.parametrize(("kind", "partitions"), [("partitioned", 4), ("non-partitioned", 0)])
def test_what_clients_bring_into_being(tmp_path: Path, kind: str, partitions: int) -> None:
    config = loaded(
        tmp_path,
        f"allowAutoTopicCreationType={kind}\ndefaultNumPartitions=4\nallowAutoSubscriptionCreation=false\n",
    ).config
    assert config.auto_topic_partitions == partitions
    assert not config.auto_subscription_creation


def test_topics_that_nobody_uses(tmp_path: Path) -> None:
    inactive = broker_config(
        loaded(
            tmp_path,
            "brokerDeleteInactiveTopicsEnabled=false\nbrokerDeleteInactiveTopicsFrequencySeconds=7\n"
            "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds=8\n"
            "brokerDeleteInactiveTopicsMode=delete_when_subscriptions_caught_up\n",
        ).config
    )
    assert inactive.inactive == InactivePolicy(delete=False, mode=DeleteMode.CAUGHT_UP, idle_s=8)
    assert inactive.inactive_interval_s == 7


def test_pulsars_file_brings_pulsars_rule_for_unused_topics(tmp_path: Path) -> None:
    """Without it a topic stays: what was just published is not lost in a minute."""
    assert not StandaloneConfig().inactive_topic_deletion
    assert loaded(tmp_path, "brokerServicePort=6650\n").config.inactive_topic_deletion
    said = loaded(tmp_path, "brokerDeleteInactiveTopicsEnabled=false\n").config
    assert not said.inactive_topic_deletion


def test_broker_metadata_is_for_whom_the_setting_names(tmp_path: Path) -> None:
    assert not broker_config(loaded(tmp_path, "brokerServicePort=6650\n").config).exposes_broker_metadata
    given = loaded(tmp_path, "exposingBrokerEntryMetadataToClientEnabled=true\n").config
    assert broker_config(given).exposes_broker_metadata


def test_the_time_of_inactivity_is_the_interval_where_it_is_not_given(tmp_path: Path) -> None:
    config = loaded(tmp_path, "brokerDeleteInactiveTopicsFrequencySeconds=7\n").config
    assert (config.inactive_topic_seconds, config.inactive_topic_interval_seconds) == (7, 7)


def test_compaction(tmp_path: Path) -> None:
    text = (
        "brokerServiceCompactionThresholdInBytes=1000\n"
        "brokerServiceCompactionMonitorIntervalInSeconds=7\n"
        "topicCompactionRetainNullKey=true\n"
    )
    config = broker_config(loaded(tmp_path, text).config)
    assert config.compaction_threshold_bytes == 1000
    assert config.compaction_interval_s == 7
    assert config.compaction_retain_null_key


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("managedLedgerOffloadDriver=\ns3ManagedLedgerOffloadBucket=b\n", ""),
        ("managedLedgerOffloadDriver=aws-s3\ns3ManagedLedgerOffloadBucket=b\n", "s3://b"),
        (
            "managedLedgerOffloadDriver=S3\nmanagedLedgerOffloadBucket=b\nmanagedLedgerOffloadRegion=eu-west-1\n",
            "s3://b?region=eu-west-1",
        ),
        (
            "managedLedgerOffloadDriver=S3\ns3ManagedLedgerOffloadBucket=b\ns3ManagedLedgerOffloadServiceEndpoint=http://h:9\n",
            "s3://b?endpoint=http://h:9",
        ),
        ("managedLedgerOffloadDriver=google-cloud-storage\ngcsManagedLedgerOffloadBucket=b\n", "gs://b"),
        ("managedLedgerOffloadDriver=filesystem\nfileSystemURI=hdfs://h:9000\n", "hdfs://h:9000"),
    ],
)
def test_offloading_goes_where_pulsars_settings_say(tmp_path: Path, text: str, url: str) -> None:
    config = loaded(
        tmp_path,
        f"{text}managedLedgerOffloadAutoTriggerSizeThresholdBytes=5\nmanagedLedgerOffloadDeletionLagMs=-1\n",
    ).config
    assert config.offload_url == url
    assert (config.offload_threshold_bytes, config.offload_deletion_lag_ms) == (5, -1)


@pytest.mark.parametrize("driver", ["aws-s3", "filesystem", "aliyun-oss"])
def test_a_store_that_is_not_named_ends_the_start(tmp_path: Path, driver: str) -> None:
    with pytest.raises(StartupError, match=driver):
        loaded(tmp_path, f"managedLedgerOffloadDriver={driver}\n")
