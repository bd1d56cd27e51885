"""`magnetar subscriptions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from magnetar.cli.caller import Caller, calls, confirm
from magnetar.cli.times import Moment
from magnetar.cli.verbs import Verb, group

_WHERE: Final = click.Option(
    ["--at"],
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    help="First position of the subscription.  [latest]",
)
_COLUMNS: Final = ("subscription", "type", "consumers", "backlog", "unacked", "rate_out", "state")


def _start(given: Mapping[str, object]) -> object:
    return str(given["at"])


VERBS: Final = (
    Verb(
        name="create",
        help="Create NAME on TOPIC.",
        method="PUT",
        path="{topic}/subscription/{name}",
        options=(_WHERE,),
        body=_start,
        done="subscription {name} of {topic} is created",
        example="subscriptions create orders billing --at earliest",
    ),
    Verb(
        name="delete",
        help="Delete NAME of TOPIC, with its position.",
        method="DELETE",
        path="{topic}/subscription/{name}",
        options=(click.Option(["--force"], is_flag=True, help="Delete it even if consumers are connected."),),
        query={"force": "force"},
        question="Delete subscription {name} of {topic}?",
        done="subscription {name} of {topic} is deleted",
        example="subscriptions delete orders billing",
    ),
    Verb(
        name="skip",
        help="Acknowledge the next COUNT entries of NAME on TOPIC.",
        method="POST",
        path="{topic}/subscription/{name}/skip/{count}",
        question="Skip {count} entries of {name} on {topic}?",
        done="{count} entries are skipped",
        example="subscriptions skip orders billing 10",
    ),
    Verb(
        name="skip-all",
        help="Acknowledge everything for NAME on TOPIC.",
        method="POST",
        path="{topic}/subscription/{name}/skip_all",
        question="Skip everything of {name} on {topic}?",
        done="everything is skipped",
        example="subscriptions skip-all orders billing",
    ),
    Verb(
        name="expire",
        help="Acknowledge messages older than SECONDS for NAME on TOPIC.",
        method="POST",
        path="{topic}/subscription/{name}/expireMessages/{seconds}",
        question="Skip what is older than {seconds} s for {name} on {topic}?",
        done="what is older than {seconds} s is skipped",
        example="subscriptions expire orders billing 3600",
    ),
)


@click.command("list", epilog="Example: magnetar subscriptions list orders")
@click.argument("topic")
@calls
def list_(caller: Caller, topic: str) -> None:
    """Show the subscriptions of TOPIC: backlog, consumers, whether it dispatches."""
    with caller.admin() as admin:
        found = admin.stats(topic)["subscriptions"]
    rows = [
        {
            "subscription": name,
            "type": stats.get("type") or "-",
            "consumers": len(stats.get("consumers", ())),
            "backlog": stats.get("msgBacklog", 0),
            "unacked": stats.get("unackedMessages", 0),
            "rate_out": round(stats.get("msgRateOut", 0.0), 1),
            "state": stats.get("dispatchState"),
        }
        for name, stats in found.items()
    ]
    caller.show(rows, columns=_COLUMNS)


@click.command(epilog="Example: magnetar subscriptions reset orders billing --to 2h")
@click.argument("topic")
@click.argument("name")
@click.option(
    "--to",
    "moment",
    type=Moment(),
    required=True,
    help="New position: earliest, latest, a time, or an age as 2h.",
)
@click.option("--dry-run", is_flag=True, help="Print the call and do not make it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@calls
def reset(caller: Caller, topic: str, name: str, moment: str | int, dry_run: bool, yes: bool) -> None:
    """Move NAME of TOPIC; messages from there on are delivered (again)."""
    from magnetar.adminclient import paths

    path = f"{paths.subscription(topic, name)}/resetcursor"
    body: object = moment
    if isinstance(moment, int):
        path, body = f"{path}/{moment}", None
    if dry_run:
        click.echo(f"POST {path}" + ("" if body is None else f"\n{body}"))
        return
    confirm(f"Move subscription {name} of {topic}?", yes=yes)
    with caller.admin() as admin:
        admin.call("POST", path, body)
    click.echo(f"subscription {name} of {topic} is moved")


subscriptions = group("subscriptions", "Subscriptions of topics.", VERBS, (list_, reset))
