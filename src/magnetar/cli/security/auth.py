"""`magnetar auth`: which role may do what, and why."""

from __future__ import annotations

from typing import Any, Final

import click

from magnetar.cli import exit_codes
from magnetar.cli.caller import Caller, calls
from magnetar.cli.output import styled

ACTIONS: Final = ("produce", "consume", "lookup", "administer")


@click.group()
def auth() -> None:
    """Permissions: check whether a role may do something, and which grant is missing."""


@auth.command("can-i", epilog="Example: magnetar auth can-i consume orders --as ada --subscription audit")
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("topic")
@click.option("--as", "role", help="Role to check.  [your own]")
@click.option("-s", "--subscription", help="Subscription of the consumer.  [any]")
@calls
def can_i(caller: Caller, action: str, topic: str, role: str | None, subscription: str | None) -> int:
    """Check whether a role may do ACTION with TOPIC, and show the rule that decides; exit code 3 when it
    may not. A role may ask about itself, an administrator of the tenant about all roles.
    """
    from magnetar.adminclient import paths

    query = {"role": role, "action": action, "subscription": subscription}
    with caller.admin() as admin:
        answer = admin.call(
            "GET",
            f"{paths.topic(topic)}/authorization",
            query={name: value for name, value in query.items() if value},
        )
    if caller.output == "table":
        _print(answer)
    else:
        caller.show(answer)
    return 0 if answer["allowed"] else exit_codes.NOT_ALLOWED


def _print(answer: dict[str, Any]) -> None:
    word = styled("yes", fg="green") if answer["allowed"] else styled("no", fg="red")
    click.echo(f"{word}: {answer['reason']}")
    for rule in answer["rules"]:
        click.echo(f"  {'+' if rule['granted'] else '-'} {rule['name']}: {rule['detail']}")
    if answer["remedy"]:
        click.echo(f"to allow it: {answer['remedy']}")
