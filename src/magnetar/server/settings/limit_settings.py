"""Settings of the default limits, which apply when policies of topic and namespace set none.

0 always means "no limit".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.broker.dispatch.consumer import UNACKED_MESSAGES_MAX
from magnetar.broker.dispatch.unacked import UNACKED_MESSAGES_MAX_SHARED
from magnetar.broker.filters.installed import known_filters
from magnetar.broker.filters.rules import FilterRules, names_in
from magnetar.broker.filters.work import TurnWork
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.broker.limits.token_bucket import Rate
from magnetar.runtime.entrance import Entrance
from magnetar.runtime.tasks import soon
from magnetar.server.open_files import affordable_sockets

_TO_BE_TOLD: Final = 64
"""Connections beyond the limit that are still accepted, to receive the reason why they are closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """The settings of limits."""

    encryption_required: bool = False
    """True: producers must encrypt their messages."""
    producers_max_per_topic: int = 0
    """Largest number of producers of a topic; 0: no limit. At least 0."""
    consumers_max_per_topic: int = 0
    """Largest number of consumers of a topic; 0: no limit. At least 0."""
    consumers_max_per_subscription: int = 0
    """Largest number of consumers of a subscription; 0: no limit. At least 0."""
    subscriptions_max_per_topic: int = 0
    """Largest number of subscriptions of a topic; 0: no limit. At least 0."""
    topics_max_per_namespace: int = 0
    """Largest number of topics of a namespace; each partition counts. 0: no limit. At least 0."""
    unacked_max_per_consumer: int = UNACKED_MESSAGES_MAX
    """Unacknowledged messages of a Shared or Key_Shared consumer; at the limit it gets no more. 0: no limit.
    At least 0."""
    unacked_max_per_subscription: int = UNACKED_MESSAGES_MAX_SHARED
    """Unacknowledged messages of a Shared or Key_Shared subscription; at the limit it gets no more. 0: no
    limit. At least 0."""
    unacked_max_per_broker: int = 0
    """Unacknowledged messages of all Shared and Key_Shared subscriptions together; above it, subscriptions
    that hold more than `unacked_blocked_percent` of it get no more. 0: no limit. At least 0."""
    unacked_blocked_percent: int = 16
    """Percentage of `unacked_max_per_broker`; above that limit, subscriptions that hold more than this part
    of it get no more messages. From 1 to 100."""
    message_ttl_seconds: int = 0
    """Age, in seconds, at which messages count as acknowledged; 0: never. At least 0."""
    backlog_quota_bytes: int = 0
    """Largest backlog of a topic's slowest subscription, in bytes; 0: no limit. At least 0."""
    backlog_quota_seconds: int = 0
    """Largest age, in seconds, of the oldest message in the backlog of a topic's slowest subscription; 0: no
    limit. At least 0."""
    backlog_quota_policy: str = QuotaPolicy.HOLD.value
    """What happens above a quota: producers wait; also `producer_exception` (they get an error),
    `consumer_backlog_eviction` (the slowest subscriptions lose their oldest entries)."""
    publish_rate_messages: int = 0
    """Messages per second published to one topic; 0: no limit. At least 0."""
    publish_rate_bytes: int = 0
    """Bytes per second published to one topic; 0: no limit. At least 0."""
    dispatch_rate_messages: int = 0
    """Messages per second delivered from one topic; 0: no limit. At least 0."""
    dispatch_rate_bytes: int = 0
    """Bytes per second delivered from one topic; 0: no limit. At least 0."""
    subscription_dispatch_rate_messages: int = 0
    """Messages per second delivered to one subscription; 0: no limit. At least 0."""
    subscription_dispatch_rate_bytes: int = 0
    """Bytes per second delivered to one subscription; 0: no limit. At least 0."""
    subscribe_rate: int = 0
    """Subscribe commands of one consumer in each period; 0: no limit. At least 0."""
    subscribe_rate_period_seconds: int = 30
    """Period of `subscribe_rate`, in seconds. At least 1."""
    connections_max: int = 0
    """Largest number of client connections; a further one is refused with `NotAllowedError`. 0: the number
    that the limit of open files allows. At least 0."""
    connections_max_per_address: int = 0
    """Largest number of client connections from one address; a further one is refused with `NotAllowedError`.
    0: no limit. At least 0."""
    connections_max_per_role: int = 0
    """Largest number of client connections of one role, counted from their authentication; a further one is
    refused with `NotAllowedError`. 0: no limit. At least 0."""
    connect_timeout_seconds: int = 10
    """Time, in seconds, in which a new connection must finish its TLS handshake and send CONNECT; later it is
    closed. At least 1."""
    commands_per_second_per_role: int = 0
    """Commands per second of one role, or of one address without authentication: a token bucket of this size.
    When it is empty, the broker does not read the connections that send commands, and answers calls of the
    admin API and handshakes of WebSockets 429. One command is: each command except messages, acknowledgements
    that arrive together, a call of the admin API, a handshake of a WebSocket, each text of a WebSocket. 0: no
    limit. At least 0."""
    loop_percent_per_role: int = 0
    """Percent of the event loop's time that one role, or one address without authentication, may use over
    seconds: for reads and the work that they cause, requests, calls of the admin API, and input and output of
    WebSockets. Above it, for at most 10 seconds, the broker does not read its connections, does not write to
    its WebSockets, and answers its calls 429. Work for many roles together (syncs, dispatch, periodic work)
    is not counted. Kafka has the same as `request_percentage`. 0: no limit. From 0 to 100."""
    tenant_stored_bytes_max: int = 0
    """Bytes that a tenant may store over all its topics, offloaded ones included, unless it has a limit of
    its own (`magnetar tenants limit-stored`). Above it its producers are refused until it stores less than 95
    % of the limit. The broker counts every 5 s, and does not count its own tenant `pulsar`. 0: no limit. At
    least 0."""
    topics_made_per_minute: int = 20_000
    """Topics that one tenant may create in a minute: a token bucket of this size; further creations wait. 0:
    no limit. At least 0."""
    subscription_expiration_minutes: int = 0
    """Time, in minutes, for which a subscription without consumers stays, when its namespace says nothing; 0:
    without limit. At least 0."""
    entry_filters: str = ""
    """Entry filters, separated by commas, that every subscription has where policies choose no others."""
    entry_filters_override: bool = True
    """True: policies of namespaces and topics may choose entry filters."""
    entry_filters_allowed: str = ""
    """Installed entry filters, separated by commas, that may be chosen in addition to the built-in one; they
    run in the broker with all of its rights."""
    entry_filter_budget_ms: int = 5
    """Time, in milliseconds, that an entry filter may take for a vector of entries; the log names a slower
    one. At least 1."""
    limits_interval_seconds: int = 60
    """Time, in seconds, between two checks of message ages and backlog quotas. At least 1."""


def tenant_limits(settings: LimitSettings) -> TenantLimits:
    """The limits of tenants, roles and addresses."""
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


def client_entrance(settings: LimitSettings, *, sockets_each: int = 1) -> Entrance:
    """Counts the sockets of all listeners of the Pulsar protocol. `sockets_each`: descriptors that a client
    costs."""
    most, per_address = settings.connections_max, settings.connections_max_per_address
    files = max(1, affordable_sockets().clients // sockets_each)
    return Entrance(
        "clients",
        min(files, most + _TO_BE_TOLD) if most > 0 else files,
        per_address + _TO_BE_TOLD if per_address > 0 else 0,
    )


def _filter_rules(settings: LimitSettings) -> FilterRules:
    """The rules of entry filters. Raises StartupError for an unknown filter."""
    rules = FilterRules(
        names=names_in(settings.entry_filters),
        known=known_filters(names_in(settings.entry_filters_allowed)),
        override=settings.entry_filters_override,
        budget_ms=settings.entry_filter_budget_ms,
        turn=TurnWork(soon),
    )
    for name in rules.names:
        if name not in rules.known:
            raise StartupError(
                f"entry_filters names {name!r}; there are {', '.join(sorted(rules.known))}"
                " (an installed filter must stand in entry_filters_allowed too)"
            )
    return rules


def default_limits(settings: LimitSettings) -> Limits:
    """The limits of a topic without policies."""
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
