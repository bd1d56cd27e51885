"""`magnetar offload`: the object stores of history, and their owners."""

from __future__ import annotations

from typing import Final

import click

from magnetar.adminclient import paths
from magnetar.cli.caller import Caller, calls, confirm

_STORES: Final = f"{paths.ROOT}/offload/stores"
_COLUMNS: Final = ("url", "role", "changes", "reason")


@click.group()
def offload() -> None:
    """Object stores of history and their owners (docs/tiered-storage.md)."""


@offload.command(epilog="Example: magnetar offload stores")
@calls
def stores(caller: Caller) -> None:
    """Show the stores that the broker uses, and whether it may write to them."""
    with caller.admin() as admin:
        found = admin.call("GET", _STORES)
    caller.show(found, columns=_COLUMNS)


@offload.command(epilog="Example: magnetar offload claim")
@click.option("--store", help="URL of the store, as `stores` shows it.  [the store of new copies]")
@click.option(
    "--sweep-earlier",
    is_flag=True,
    help="Also delete earlier objects that no topic of this broker names.",
)
@click.option("--dry-run", is_flag=True, help="Show the owner, and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@calls
def claim(caller: Caller, store: str | None, *, sweep_earlier: bool, dry_run: bool, yes: bool) -> None:
    """Make this installation the owner of a store. The previous owner can only read it from then on. Do
    this only when the previous owner is gone for good, or is a copy of this installation.
    """
    if dry_run:
        with caller.admin() as admin:
            found = [row for row in admin.call("GET", _STORES) if store in (None, row["url"])]
        caller.show(found, columns=_COLUMNS)
        return
    what = store or "the store of new copies"
    confirm(f"Make this installation the owner of {what}?", yes=yes)
    query: dict[str, object] = {} if store is None else {"url": store}
    if sweep_earlier:
        query["sweepEarlier"] = "true"
    with caller.admin() as admin:
        caller.show(admin.call("POST", f"{_STORES}/claim", query=query))
