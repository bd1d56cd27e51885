"""Settings of the limits that hold where neither a topic nor its namespace says anything.

0 is "without limit" everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.broker.dispatch.consumer import UNACKED_MESSAGES_MAX
from magnetar.broker.dispatch.unacked import UNACKED_MESSAGES_MAX_SHARED
from magnetar.broker.filters.installed import known_filters
from magnetar.broker.filters.rules import FilterRules, names_in
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.broker.limits.token_bucket import Rate
from magnetar.runtime.entrance import Entrance
from magnetar.server.open_files import affordable_sockets

_TO_BE_TOLD: Final = 64
"""Connections beyond the limit that are accepted all the same, to hear why they are closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """The part of the settings that is about limits."""

    encryption_required: bool = False
    """Whether producers must encrypt their messages."""
    producers_max_per_topic: int = 0
    consumers_max_per_topic: int = 0
    consumers_max_per_subscription: int = 0
    subscriptions_max_per_topic: int = 0
    topics_max_per_namespace: int = 0
    """Partitions count."""
    unacked_max_per_consumer: int = UNACKED_MESSAGES_MAX
    """Messages of a Shared or Key_Shared consumer that wait for their acknowledgement."""
    unacked_max_per_subscription: int = UNACKED_MESSAGES_MAX_SHARED
    """Messages of a Shared or Key_Shared subscription that wait for their acknowledgement."""
    unacked_max_per_broker: int = 0
    """The same of all Shared and Key_Shared subscriptions together."""
    unacked_blocked_percent: int = 16
    """Part of that limit: beyond the limit, subscriptions that hold more than it get no more. 1 to 100."""
    message_ttl_seconds: int = 0
    """Age at which messages count as acknowledged."""
    backlog_quota_bytes: int = 0
    """Largest backlog of a topic's slowest subscription."""
    backlog_quota_seconds: int = 0
    """Largest age of the oldest message that it has not acknowledged."""
    backlog_quota_policy: str = QuotaPolicy.HOLD.value
    """What happens above a quota: one of QuotaPolicy."""
    publish_rate_messages: int = 0
    """Of a topic, each second; so are the following."""
    publish_rate_bytes: int = 0
    dispatch_rate_messages: int = 0
    dispatch_rate_bytes: int = 0
    subscription_dispatch_rate_messages: int = 0
    """Of a subscription, each second."""
    subscription_dispatch_rate_bytes: int = 0
    subscribe_rate: int = 0
    """Subscribe commands of a consumer in each period."""
    subscribe_rate_period_seconds: int = 30
    connections_max: int = 0
    """Connections of clients; 0: as many as the limit of open files allows."""
    connections_max_per_address: int = 0
    connections_max_per_role: int = 0
    """Of clients that proved who they are."""
    connect_timeout_seconds: int = 10
    """Time in which a new connection must finish its TLS handshake and send CONNECT; later it is closed.
    At least 1."""
    commands_per_second_per_role: int = 0
    """Commands of one role, or of one address whose clients do not say who they are; messages and their
    acknowledgements are none. Calls of the admin API are."""
    loop_percent_per_role: int = 0
    """Percent of the event loop's time that commands, messages and calls of one role, or of such an address,
    may take."""
    tenant_stored_bytes_max: int = 0
    """Bytes that a tenant may store over all its topics, offloaded ones included."""
    topics_made_per_minute: int = 20_000
    """Topics that a tenant may make in a minute, a partitioned one counted once: a token bucket of this size;
    further creations wait."""
    subscription_expiration_minutes: int = 0
    """How long a subscription without consumers stays."""
    entry_filters: str = ""
    """Entry filters, separated by commas, that every subscription has where policies choose no others."""
    entry_filters_override: bool = True
    """Whether policies of namespaces and topics may choose entry filters."""
    entry_filters_allowed: str = ""
    """Installed entry filters, separated by commas, that may be chosen beside our own. They run in this
    process and can do whatever it can."""
    entry_filter_budget_ms: int = 5
    """Time that an entry filter may take for a vector before it is named in the log. At least 1."""
    limits_interval_seconds: int = 60
    """Time between two checks of message ages and backlog quotas. At least 1."""


def tenant_limits(settings: LimitSettings) -> TenantLimits:
    """What no tenant, role or machine may have more of."""
    return TenantLimits(
        connections_max=settings.connections_max or max(1, affordable_sockets().clients - _TO_BE_TOLD),
        connections_max_per_address=settings.connections_max_per_address,
        connections_max_per_role=settings.connections_max_per_role,
        topics_made_per_minute=settings.topics_made_per_minute,
        commands_per_second_per_role=settings.commands_per_second_per_role,
        loop_percent_per_role=settings.loop_percent_per_role,
        stored_bytes_max=settings.tenant_stored_bytes_max,
        unacked_max=settings.unacked_max_per_broker,
        unacked_blocked_percent=settings.unacked_blocked_percent,
    )


def client_entrance(settings: LimitSettings) -> Entrance:
    """Counts the sockets of all listeners of the Pulsar protocol."""
    most, per_address = settings.connections_max, settings.connections_max_per_address
    files = affordable_sockets().clients
    return Entrance(
        "clients",
        min(files, most + _TO_BE_TOLD) if most > 0 else files,
        per_address + _TO_BE_TOLD if per_address > 0 else 0,
    )


def _filter_rules(settings: LimitSettings) -> FilterRules:
    """Raises StartupError for a filter that there is not."""
    rules = FilterRules(
        names=names_in(settings.entry_filters),
        known=known_filters(names_in(settings.entry_filters_allowed)),
        override=settings.entry_filters_override,
        budget_ms=settings.entry_filter_budget_ms,
    )
    for name in rules.names:
        if name not in rules.known:
            raise StartupError(
                f"entry_filters names {name!r}; there are {', '.join(sorted(rules.known))}"
                " (an installed filter must stand in entry_filters_allowed too)"
            )
    return rules


def default_limits(settings: LimitSettings) -> Limits:
    """The limits of a topic of which nothing is said."""
    policy = QuotaPolicy(settings.backlog_quota_policy)
    quotas = (
        (QuotaKind.SIZE, settings.backlog_quota_bytes),
        (QuotaKind.AGE, settings.backlog_quota_seconds),
    )
    return Limits(
        encryption_required=settings.encryption_required,
        producers_max=settings.producers_max_per_topic,
        consumers_max=settings.consumers_max_per_topic,
        consumers_max_per_subscription=settings.consumers_max_per_subscription,
        subscriptions_max=settings.subscriptions_max_per_topic,
        topics_max=settings.topics_max_per_namespace,
        unacked_max_per_consumer=settings.unacked_max_per_consumer,
        unacked_max_per_subscription=settings.unacked_max_per_subscription,
        ttl_s=settings.message_ttl_seconds,
        quotas=tuple(BacklogQuota(kind, limit, policy) for kind, limit in quotas if limit),
        publish_rate=Rate(settings.publish_rate_messages, settings.publish_rate_bytes),
        dispatch_rate=Rate(settings.dispatch_rate_messages, settings.dispatch_rate_bytes),
        subscription_dispatch_rate=Rate(
            settings.subscription_dispatch_rate_messages, settings.subscription_dispatch_rate_bytes
        ),
        entry_filters=_filter_rules(settings),
        subscribe_rate=Rate(settings.subscribe_rate, 0, settings.subscribe_rate_period_seconds * 1000),
    )
