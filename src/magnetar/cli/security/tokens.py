"""`magnetar tokens`: keys that sign tokens, and tokens for clients without an issuer."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from pathlib import Path

import click

_SECRET_BYTES = 32
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_FILE = click.Path(path_type=Path)


def _seconds(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Parses a duration of a number and a unit, as Pulsar's command does; returns seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)([smhdwy])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write for instance 90s, 12h, 30d, 1y")
    return int(found[1]) * _UNIT_S[found[2]]


@click.group()
def tokens() -> None:
    """Keys and tokens for authentication (docs/security.md)."""


@tokens.command()
@click.argument("file", type=_FILE)
def create_secret_key(file: Path) -> None:
    """Write a new random key to FILE, which must not exist; only you may read it."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.ClickException(
            f"{file} cannot be written: {error.strerror}; name a file that does not exist"
        ) from error
    with open(descriptor, "wb") as key:
        key.write(os.urandom(_SECRET_BYTES))
    click.echo(f"token_secret_key = {json.dumps(str(file.absolute()))}")


@tokens.command()
@click.option("--secret-key", required=True, help="File of the key, as for the setting token_secret_key.")
@click.option("--subject", required=True, help="The role that the token names.")
@click.option(
    "--expires", callback=_seconds, help="Time until the token expires: 90s, 12h, 30d, 1y.  [never]"
)
def create(secret_key: str, subject: str, expires: int | None) -> None:
    """Print a token, signed with the key (HS256), and beside it (on stderr) the id to revoke it by."""
    from magnetar.auth.secrets import content, secret_source

    try:
        secret = content(secret_source(secret_key))
        from magnetar.auth.token import new_token

        token_id = uuid.uuid4().hex
        click.echo(new_token(secret, subject, now_s=int(time.time()), lasts_s=expires, token_id=token_id))
        click.echo(f"id: {token_id}", err=True)
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "tokens need the extra 'auth': pip install '.[auth]' in a clone"
        ) from error
    except ValueError as error:
        raise click.ClickException(f"{secret_key}: {error}") from error
