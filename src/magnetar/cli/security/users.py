"""`magnetar users`: the file of users and passwords that `basic_users` names."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Final

import click

_FILE = click.Path(path_type=Path, dir_okay=False)
_NAME: Final = re.compile(r"[^\s:#][^\s:]{0,99}")
_PASSWORD_BYTES_MAX: Final = 72
"""Most bytes of a password: bcrypt ignores further ones."""


@click.group()
def users() -> None:
    """Users and passwords for authentication, in an htpasswd file (docs/security.md)."""


def _name(context: click.Context, option: click.Parameter, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r}: a name has 1 to 100 characters, no space and no colon, and does not begin with #"
        )
    return name


@users.command(name="set", epilog="Example: magnetar users set users.htpasswd orders")
@click.argument("file", type=_FILE)
@click.argument("name", callback=_name)
def set_password(file: Path, name: str) -> None:
    """Add a user to FILE, or change its password. The command asks for the password, or reads it from the
    first line of the input, and stores a hash (bcrypt). A running broker reads the file automatically, and
    closes connections with the old password.
    """
    if sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password or "\0" in password or len(password.encode()) > _PASSWORD_BYTES_MAX:
        raise click.ClickException(f"a password has 1 to {_PASSWORD_BYTES_MAX} bytes, none of them 0")
    try:
        from passlib.hash import bcrypt
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "passwords need the extra 'auth': pip install '.[auth]' in a clone"
        ) from error
    lines, was_there = _without(file, name)
    _write(file, [*lines, f"{name}:{bcrypt.hash(password)}"])
    click.echo(f"the password of {name} is changed" if was_there else f"{name} is added")


@users.command(epilog="Example: magnetar users remove users.htpasswd orders")
@click.argument("file", type=_FILE)
@click.argument("name", callback=_name)
def remove(file: Path, name: str) -> None:
    """Remove a user from FILE; a running broker closes its connections when it reads the file."""
    lines, was_there = _without(file, name)
    if not was_there:
        raise click.ClickException(f"{file} has no user {name}")
    _write(file, lines)
    click.echo(f"{name} is removed")


def _without(file: Path, name: str) -> tuple[list[str], bool]:
    """The lines of all other users, and whether the user was there."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} cannot be read: {error}") from error
    others = [line for line in lines if line.strip().partition(":")[0] != name]
    return others, len(others) < len(lines)


def _write(file: Path, lines: list[str]) -> None:
    """Replaces the file by a rename, so a broker reads the old or the new file. An existing file keeps its
    rights; a new one has 0600."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        rights = file.stat().st_mode & 0o777 if file.exists() else 0o600
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            os.fchmod(out.fileno(), rights)
            out.write("".join(f"{line}\n" for line in lines))
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):  # why it could not be written matters, and is raised
            new.unlink()
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
