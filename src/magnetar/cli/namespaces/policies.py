"""`magnetar namespaces policies` and `magnetar topics policies`: policies of a namespace or a topic.

A value is JSON, a word, or fields as KEY=VALUE: `retention retentionTimeInMinutes=60 retentionSizeInMB=-1`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import click

from magnetar.adminclient import paths
from magnetar.adminclient.errors import AdminRefusedError
from magnetar.base.errors import MagnetarError
from magnetar.cli.caller import Caller, calls
from magnetar.cli.output import table_lines
from magnetar.cli.wildcards import topics_named

NAMESPACE: Final = {
    "autoSubscriptionCreation": "allowAutoSubscriptionCreation=false",
    "autoTopicCreation": "allowAutoTopicCreation=true topicType=partitioned defaultNumPartitions=4",
    "backlogQuota": "limitSize=1000000000 policy=producer_request_hold",
    "compactionThreshold": "100000000",
    "deduplication": "true",
    "deduplicationSnapshotInterval": "120",
    "delayedDelivery": "active=true tickTime=1000",
    "dispatchRate": "dispatchThrottlingRateInMsg=1000",
    "encryptionRequired": "true",
    "entryFilters": "entryFilterNames=expression",
    "inactiveTopicPolicies": "deleteWhileInactive=true maxInactiveDurationSeconds=3600",
    "isAllowAutoUpdateSchema": "false",
    "maxConsumersPerSubscription": "10",
    "maxConsumersPerTopic": "100",
    "maxProducersPerTopic": "100",
    "maxSubscriptionsPerTopic": "50",
    "maxTopicsPerNamespace": "1000",
    "maxUnackedMessagesPerConsumer": "50000",
    "maxUnackedMessagesPerSubscription": "200000",
    "messageTTL": "86400",
    "offloadMaxAgeInSeconds": "300",
    "persistence": "bookkeeperEnsemble=1 bookkeeperWriteQuorum=1 bookkeeperAckQuorum=1",
    "publishRate": "publishThrottlingRateInMsg=1000",
    "retention": "retentionTimeInMinutes=60 retentionSizeInMB=-1",
    "schemaCompatibilityStrategy": "BACKWARD",
    "schemaValidationEnforced": "true",
    "subscribeRate": "subscribeThrottlingRatePerConsumer=10 ratePeriodInSecond=30",
    "subscriptionAuthMode": "Prefix",
    "subscriptionDispatchRate": "dispatchThrottlingRateInMsg=1000",
    "subscriptionExpirationTime": "10080",
    "subscriptionTypesEnabled": '["Shared","Key_Shared"]',
}
"""Policies of a namespace, with an example of a value."""

TOPIC: Final = {
    "autoSubscriptionCreation": "allowAutoSubscriptionCreation=false",
    "backlogQuota": "limitSize=1000000000 policy=producer_request_hold",
    "compactionThreshold": "100000000",
    "deduplicationEnabled": "true",
    "deduplicationSnapshotInterval": "120",
    "delayedDelivery": "active=true tickTime=1000",
    "dispatchRate": "dispatchThrottlingRateInMsg=1000",
    "entryFilters": "entryFilterNames=expression",
    "inactiveTopicPolicies": "deleteWhileInactive=true maxInactiveDurationSeconds=3600",
    "maxConsumers": "100",
    "maxConsumersPerSubscription": "10",
    "maxMessageSize": "1048576",
    "maxProducers": "100",
    "maxSubscriptionsPerTopic": "50",
    "maxUnackedMessagesOnConsumer": "50000",
    "maxUnackedMessagesOnSubscription": "200000",
    "messageTTL": "86400",
    "offloadMaxAgeInSeconds": "300",
    "publishRate": "publishThrottlingRateInMsg=1000",
    "retention": "retentionTimeInMinutes=60 retentionSizeInMB=-1",
    "schemaCompatibilityStrategy": "BACKWARD",
    "schemaValidationEnforced": "true",
    "subscribeRate": "subscribeThrottlingRatePerConsumer=10 ratePeriodInSecond=30",
    "subscriptionDispatchRate": "dispatchThrottlingRateInMsg=1000",
    "subscriptionTypesEnabled": '["Shared","Key_Shared"]',
}
"""Policies of a topic, with an example of a value."""

_READ_AS: Final = {"backlogQuota": "backlogQuotaMap"}
_PUT: Final = frozenset({("namespace", "compactionThreshold"), ("namespace", "schemaCompatibilityStrategy"),
                         ("topic", "schemaCompatibilityStrategy")})  # fmt: skip
"""Policies that are set by PUT. All others are set by POST; for unknown names PUT is tried after POST."""


_METHOD_NOT_ALLOWED: Final = 405


class UnknownPolicyError(MagnetarError):
    """No policy has this name."""


def value_of(words: tuple[str, ...]) -> object:
    """The document that the words give. Raises click.BadParameter."""
    if len(words) > 1 or (words and "=" in words[0] and words[0][0] not in '[{"'):
        pairs = [word.partition("=") for word in words]
        if any(not separator for _, separator, _ in pairs):
            raise click.BadParameter(f"{' '.join(words)!r} is neither JSON nor KEY=VALUE ...")
        return {key: value_of((value,)) for key, _, value in pairs}
    try:
        return json.loads(words[0])
    except ValueError:
        return words[0]


def _check(name: str, known: Mapping[str, str]) -> None:
    """Raises UnknownPolicyError for a name that resembles a policy. Other unknown names may be policies of a
    newer broker."""
    if name in known:
        return
    import difflib

    names = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.8)
    if close:
        raise UnknownPolicyError(f"there is no policy {name!r} here; did you mean {names[close[0]]}?")


class _Level(NamedTuple):
    """The level at which policies are set: namespaces or topics."""

    kind: str
    known: Mapping[str, str]
    place: Callable[[str], str]
    """Makes the path of a namespace or topic."""
    example: str

    @property
    def command(self) -> str:
        return f"magnetar {self.kind}s policies"


def _group_of(level: _Level) -> click.Group:
    """The group `policies` of a level."""
    made = click.Group("policies", help=f"Policies of a {level.kind}: limits, retention, quotas and others.")
    for command in (_list(level), _get(level), _set(level), _unset(level)):
        made.add_command(command)
    return made


def _list(level: _Level) -> click.Command:
    @click.command(
        "list",
        epilog=f"Example: {level.command} list",
        help="Show the most used policies, with examples; `set` accepts others too.",
    )
    def run() -> None:
        rows = [{"policy": name, "example": value} for name, value in level.known.items()]
        for line in table_lines(rows):
            click.echo(line)

    return run


def _get(level: _Level) -> click.Command:
    @click.command(
        "get",
        epilog=f"Example: {level.command} get {level.example} retention --applied",
        help=f"Show the policies that are set for a {level.kind}, or only the policy NAME.",
    )
    @click.argument(level.kind)
    @click.argument("name", required=False)
    @click.option(
        "--applied", is_flag=True, help="Show the value in force, also when it is set at another level."
    )
    @calls
    def run(caller: Caller, name: str | None, applied: bool, **where: str) -> None:
        if name is not None:
            _check(name, level.known)
        query = {"applied": "true"} if applied else {}
        found = {}
        with caller.admin() as admin:
            for each in level.known if name is None else [name]:
                path = f"{level.place(where[level.kind])}/{_READ_AS.get(each, each)}"
                found[each] = admin.call("GET", path, query=query)
        if name is not None:
            caller.show(found[name])
        else:
            caller.show({key: value for key, value in found.items() if value not in (None, {})})

    return run


def _set(level: _Level) -> click.Command:
    @click.command(
        "set",
        epilog=f"Example: {level.command} set {level.example} retention {level.known['retention']}",
        help=f"Set the policy NAME of a {level.kind} to VALUE: JSON, a word, or KEY=VALUE for each field.",
    )
    @click.argument(level.kind)
    @click.argument("name")
    @click.argument("value", nargs=-1, required=True)
    @click.option("--dry-run", is_flag=True, help="Print the call and do not make it.")
    @calls
    def run(caller: Caller, name: str, value: tuple[str, ...], dry_run: bool, **where: str) -> None:
        _check(name, level.known)
        method, body = "PUT" if (level.kind, name) in _PUT else "POST", value_of(value)
        for owner in _owners(caller, level, where[level.kind]):
            path, done = f"{level.place(owner)}/{name}", f"{name} of {owner} is set"
            try:
                _change(caller, method, path, body, dry_run=dry_run, done=done)
            except AdminRefusedError as error:
                if error.status != _METHOD_NOT_ALLOWED or name in level.known:
                    raise
                _change(caller, "PUT", path, body, dry_run=dry_run, done=done)

    return run


def _unset(level: _Level) -> click.Command:
    @click.command(
        "unset",
        epilog=f"Example: {level.command} unset {level.example} retention",
        help=f"Remove the policy NAME of a {level.kind}, so that the next level applies.",
    )
    @click.argument(level.kind)
    @click.argument("name")
    @click.option("--dry-run", is_flag=True, help="Print the call and do not make it.")
    @calls
    def run(caller: Caller, name: str, dry_run: bool, **where: str) -> None:
        _check(name, level.known)
        for owner in _owners(caller, level, where[level.kind]):
            done = f"{name} of {owner} is no longer set"
            _change(caller, "DELETE", f"{level.place(owner)}/{name}", None, dry_run=dry_run, done=done)

    return run


def _owners(caller: Caller, level: _Level, name: str) -> list[str]:
    """The namespace or topic of this name, or all topics that match it as a wildcard."""
    return topics_named(caller, name) if level.kind == "topic" else [name]


def _change(caller: Caller, method: str, path: str, body: object, *, dry_run: bool, done: str) -> None:
    if dry_run:
        click.echo(f"{method} {path}" + ("" if body is None else f"\n{json.dumps(body)}"))
        return
    with caller.admin() as admin:
        admin.call(method, path, body)
    click.echo(done)


NAMESPACE_POLICIES: Final = _group_of(_Level("namespace", NAMESPACE, paths.namespace, "public/default"))
TOPIC_POLICIES: Final = _group_of(_Level("topic", TOPIC, paths.topic, "orders"))
