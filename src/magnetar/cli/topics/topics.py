"""`magnetar topics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from magnetar.adminclient import paths
from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller, calls
from magnetar.cli.messages.get import get
from magnetar.cli.namespaces.namespaces import MODE
from magnetar.cli.namespaces.policies import TOPIC_POLICIES
from magnetar.cli.verbs import Verb, group


def _looked_up(document: Mapping[str, object]) -> object:
    return {key: value for key, value in document.items() if value}


VERBS: Final = (
    Verb(
        name="list",
        help="Show the topics of NAMESPACE, partitions by their own names.",
        path="{namespace}/topics",
        options=(
            MODE,
            click.Option(
                ["--match"],
                metavar="WILDCARD",
                help="Show only names that match a wildcard such as 'nyc.**' or '*.chat'.  [all]",
            ),
        ),
        query={"mode": "mode", "match": "match"},
        example="topics list public/default --match 'nyc.**'",
    ),
    Verb(
        name="delete",
        help="Delete TOPIC, with its partitions, subscriptions and messages.",
        method="DELETE",
        path="{topic}",
        options=(click.Option(["--force"], is_flag=True, help="Delete it even if clients are connected."),),
        query={"force": "force"},
        question="Delete {topic} with its messages?",
        done="{topic} is deleted",
        example="topics delete orders",
    ),
    Verb(
        name="internal-stats",
        help="Show ledgers, positions and cursors of TOPIC.",
        path="{topic}/internalStats",
        example="topics internal-stats orders -o yaml",
    ),
    Verb(
        name="partitions",
        help="Show how many partitions TOPIC has.",
        path="{topic}/partitions",
        rows=lambda found: found["partitions"],
        example="topics partitions orders",
    ),
    Verb(
        name="grow",
        help="Give TOPIC more partitions, COUNT in all.",
        method="POST",
        path="{topic}/partitions",
        options=(
            click.Option(
                ["--to", "count"],
                type=click.IntRange(1, 10_000),
                required=True,
                help="Number of partitions after the call, 1 to 10000.",
            ),
        ),
        body=lambda given: given["count"],
        done="{topic} has {count} partitions",
        example="topics grow orders --to 8",
    ),
    Verb(
        name="unload",
        help="Close TOPIC; clients reconnect automatically.",
        method="PUT",
        path="{topic}/unload",
        done="{topic} is closed",
        example="topics unload orders",
    ),
    Verb(
        name="terminate",
        help="Make TOPIC refuse new messages, for good.",
        method="POST",
        path="{topic}/terminate",
        question="Let {topic} take no more messages, for good?",
        example="topics terminate orders",
    ),
    Verb(
        name="compact",
        help="Start a compaction of TOPIC, which keeps the last message of each key.",
        method="PUT",
        path="{topic}/compaction",
        done="the compaction of {topic} has begun",
        example="topics compact orders",
    ),
    Verb(
        name="compaction-status",
        help="Show the state of the last compaction of TOPIC.",
        path="{topic}/compaction",
        example="topics compaction-status orders",
    ),
    Verb(
        name="lookup",
        help="Show which broker serves TOPIC.",
        path="{lookup}",
        rows=_looked_up,
        example="topics lookup orders",
    ),
    Verb(
        name="last-id",
        help="Show the id of the last message of TOPIC.",
        path="{topic}/lastMessageId",
        example="topics last-id orders",
    ),
    Verb(
        name="permissions",
        help="Show the permissions of roles on TOPIC.",
        path="{topic}/permissions",
        example="topics permissions orders",
    ),
    Verb(
        name="properties",
        help="Show the properties of TOPIC.",
        path="{topic}/properties",
        example="topics properties orders",
    ),
)


@click.command(epilog="Example: magnetar topics create orders --partitions 4")
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(0, 10_000),
    default=0,
    help="Number of partitions; 0: the topic is not partitioned.  [0]",
)
@click.option("--dry-run", is_flag=True, help="Print the call and do not make it.")
@calls
def create(caller: Caller, topic: str, partitions: int, dry_run: bool) -> None:
    """Create TOPIC."""
    path = paths.topic(topic) + ("/partitions" if partitions else "")
    if dry_run:
        click.echo(f"PUT {path}" + (f"\n{partitions}" if partitions else ""))
        return
    with caller.admin() as admin:
        admin.call("PUT", path, partitions or None)
    click.echo(f"{topic} is created")


@click.command(epilog="Example: magnetar topics stats orders -o json")
@click.argument("topic")
@calls
def stats(caller: Caller, topic: str) -> None:
    """Show counters of TOPIC, of all its partitions together."""
    with caller.admin() as admin:
        found = admin.stats(topic)
    if caller.output != "table":
        caller.show(found)
        return
    caller.show(
        {
            "messages in": found.get("msgInCounter", 0),
            "messages out": found.get("msgOutCounter", 0),
            "rate in": round(found.get("msgRateIn", 0.0), 1),
            "rate out": round(found.get("msgRateOut", 0.0), 1),
            "bytes stored": found.get("storageSize", 0),
            "producers": len(found.get("publishers", ())),
            "subscriptions": ",".join(found.get("subscriptions", ())) or "-",
        }
    )


@click.command(epilog="Example: magnetar topics explain orders -s billing")
@click.argument("topic")
@click.option("--subscription", "-s", help="Show only this subscription.  [all]")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@calls
def explain(caller: Caller, topic: str, subscription: str | None, as_json: bool) -> None:
    """Show for each subscription of TOPIC why it does or does not dispatch."""
    name = TopicName.parse(topic)
    with caller.admin() as admin:
        found = admin.explain(topic, subscription)
    if as_json or caller.output != "table":
        caller.output = "json" if as_json else caller.output
        caller.show(found)
        return
    if not found:
        click.echo(f"{name} has no subscriptions")
    for each in found:
        click.echo(f"{each['subscription']} on {each['topic']}: {each['state']}: {each['reason']}")
        for consumer in each["consumers"]:
            click.echo(f"  {consumer['name']}: {consumer['state']}: {consumer['reason']}")


topics = group(
    "topics",
    "Topics: create, delete, inspect, and explain why they do or do not deliver.",
    VERBS,
    (create, get, stats, explain, TOPIC_POLICIES),
)
