"""`magnetar context`: clusters by name."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from magnetar.cli.contexts import contexts
from magnetar.cli.contexts.contexts import ContextError, ContextPlace
from magnetar.cli.output import FORMATS, show


@click.group()
def context() -> None:
    """Clusters by name: addresses and credentials."""


@context.command(
    epilog="Example: magnetar context add prod --url https://pulsar.example.com:8443 --token-file ~/prod"
)
@click.argument("name")
@click.option("--url", required=True, help="Address of the broker: pulsar://HOST:6650 or http://HOST:8080.")
@click.option(
    "--admin-url", default="", help="Address of the admin API, http://HOST:8080.  [port 8080 of the broker]"
)
@click.option("--token", default="", help="Token for authentication, stored in the file of contexts.  [none]")
@click.option("--token-file", default="", help="File with the token, read by every command.  [none]")
@click.option(
    "--trust-certs", default="", help="PEM file of the authorities to trust over TLS.  [those of the system]"
)
def add(name: str, **given: str) -> None:
    """Store a cluster under NAME, or change it; the first one becomes the current one."""
    for option in ("token_file", "trust_certs"):
        if given[option]:
            given[option] = os.path.abspath(os.path.expanduser(given[option]))
    file = contexts.file_of(os.environ)
    known = contexts.load(file)
    known.places[name] = replace(ContextPlace(), **given)
    known.current = known.current or name
    contexts.save(file, known)
    click.echo(
        f"context {name} is stored in {file}" + (" and is the current one" if known.current == name else "")
    )


@context.command(epilog="Example: magnetar context use prod")
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current cluster."""
    file = contexts.file_of(os.environ)
    known = contexts.load(file)
    known.place(name)
    known.current = name
    contexts.save(file, known)
    click.echo(f"{name} is the current context")


@context.command("list", epilog="Example: magnetar context list -o json")
@click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)
def list_(output: str) -> None:
    """Show all clusters, without their secrets."""
    known = contexts.load(contexts.file_of(os.environ))
    rows = [
        {"current": "*" if name == known.current else "", "name": name, **_row(place)}
        for name, place in known.places.items()
    ]
    show(rows, output)


def _row(place: ContextPlace) -> dict[str, str]:
    shown = place.shown()
    credential = "token" if place.token else place.token_file
    return {"url": shown.get("url", ""), "admin_url": shown.get("admin_url", ""), "credential": credential}


@context.command(epilog="Example: magnetar context remove old")
@click.argument("name")
def remove(name: str) -> None:
    """Remove NAME."""
    file = contexts.file_of(os.environ)
    known = contexts.load(file)
    if name not in known.places:
        raise ContextError(f"there is no context {name!r}; `magnetar context list` shows them")
    del known.places[name]
    known.current = "" if known.current == name else known.current
    contexts.save(file, known)
    click.echo(f"{name} is removed")
