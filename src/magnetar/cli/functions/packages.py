"""`magnetar packages`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from magnetar.adminclient import paths
from magnetar.cli.caller import Caller, calls, confirm
from magnetar.cli.functions.configuring import file_part

_KIND: Final = click.option(
    "--type",
    "kind",
    type=click.Choice(("function", "sink", "source")),
    default="function",
    help="Type of the package.  [function]",
)
_FILE: Final = click.Path(path_type=Path)


@click.group()
def packages() -> None:
    """Packages: the code of functions by name and version (docs/functions.md)."""


@packages.command("list", epilog="Example: magnetar packages list public/default")
@click.argument("namespace")
@_KIND
@calls
def list_packages(caller: Caller, namespace: str, kind: str) -> None:
    """Show the packages of NAMESPACE."""
    with caller.admin() as admin:
        caller.show(admin.call("GET", paths.packages(namespace, kind)))


@packages.command(epilog="Example: magnetar packages versions exclamation")
@click.argument("package")
@_KIND
@calls
def versions(caller: Caller, package: str, kind: str) -> None:
    """Show the versions of PACKAGE: NAME in public/default, or TENANT/NAMESPACE/NAME."""
    with caller.admin() as admin:
        caller.show(admin.call("GET", paths.package(package, kind)))


@packages.command(
    epilog="Example: magnetar packages upload exclamation 1.0 exclamation.py --description 'adds !'"
)
@click.argument("package")
@click.argument("version")
@click.argument("file", type=_FILE)
@_KIND
@click.option("--description", default="", help="What it is.  [none]")
@click.option("--contact", default="", help="Address for questions about it.  [none]")
@calls
def upload(
    caller: Caller, package: str, version: str, file: Path, kind: str, description: str, contact: str
) -> None:
    """Upload FILE as VERSION of PACKAGE; a version does not change afterwards."""
    metadata = json.dumps({"description": description, "contact": contact})
    path = f"{paths.package(package, kind)}/{paths.part(version)}"
    with caller.admin() as admin:
        admin.send("POST", path, {"metadata": metadata, "file": file_part(file)})
    if caller.output == "table":
        click.echo(f"{package}@{version} is uploaded")


@packages.command(epilog="Example: magnetar packages describe exclamation 1.0")
@click.argument("package")
@click.argument("version")
@_KIND
@calls
def describe(caller: Caller, package: str, version: str, kind: str) -> None:
    """Show description, contact, properties and times of VERSION of PACKAGE."""
    with caller.admin() as admin:
        caller.show(admin.call("GET", f"{paths.package(package, kind)}/{paths.part(version)}/metadata"))


@packages.command(epilog="Example: magnetar packages download exclamation 1.0 exclamation.py")
@click.argument("package")
@click.argument("version")
@click.argument("file", type=_FILE)
@_KIND
@calls
def download(caller: Caller, package: str, version: str, file: Path, kind: str) -> None:
    """Write VERSION of PACKAGE to FILE."""
    with caller.admin() as admin:
        file.write_bytes(admin.answer(f"{paths.package(package, kind)}/{paths.part(version)}").body)
    if caller.output == "table":
        click.echo(f"{file} is written")


@packages.command(epilog="Example: magnetar packages delete exclamation 1.0")
@click.argument("package")
@click.argument("version")
@_KIND
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print the call and do not make it.")
@calls
def delete(caller: Caller, package: str, version: str, kind: str, *, yes: bool, dry_run: bool) -> None:
    """Delete VERSION of PACKAGE; functions made of it keep their copies."""
    path = f"{paths.package(package, kind)}/{paths.part(version)}"
    if dry_run:
        click.echo(f"DELETE {path}")
        return
    confirm(f"Delete {package}@{version}?", yes=yes)
    with caller.admin() as admin:
        admin.call("DELETE", path)
    if caller.output == "table":
        click.echo(f"{package}@{version} is deleted")
