"""`magnetar secure`: makes the files of a broker with authentication over TLS."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magnetar.cli.given import given_as

if TYPE_CHECKING:
    from magnetar.cli.security.secure_files import Wanted

_ROLE: Final = re.compile(r"[\w.@-]{1,64}")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@click.group()
def secure() -> None:
    """Certificates, tokens and settings of a broker with authentication (docs/security.md)."""


def _roles(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for role in given:
        if not _ROLE.fullmatch(role) or role.startswith("."):
            raise click.BadParameter(f"{role!r}: a role has 1 to 64 letters, digits, _ . @ or -")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    folder: Path
    hosts: tuple[str, ...]
    listen: str
    admin: str
    roles: tuple[str, ...]
    days: int
    context: str | None
    dry_run: bool


@secure.command(
    epilog="Example: magnetar secure init ~/magnetar-secure --host broker.example.com --role orders"
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("magnetar-secure"))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Name or address by which clients reach the broker; may be repeated.  [this machine's]",
)
@click.option("--listen", default="127.0.0.1", help="Address to listen on over TLS.  [127.0.0.1]")
@click.option("--admin", default="admin", help="Role that may do everything.  [admin]")
@click.option(
    "--role",
    "roles",
    multiple=True,
    callback=_roles,
    help="Further role that gets a token; may be repeated.  [none]",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    help="Days until certificates and tokens expire.  [365]",
)
@click.option("--context", help="Store the broker as a context of this name.  [none]")
@click.option("--dry-run", is_flag=True, help="Show what would be created, without creating it.")
@given_as(_Given)
def init(given: _Given) -> None:
    """Create an authority, certificates, tokens and settings in FOLDER, which only you can read. Existing
    files are not changed. Run it again with a further --role, or after moving an expired certificate and
    its key away, to create missing files.
    """
    try:
        from magnetar.cli.security.secure_files import METRICS_ROLE, SETTINGS_FILE, Wanted, run
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "certificates and tokens need the extra 'auth': pip install '.[auth]' in a clone"
        ) from error
    wanted = Wanted(
        folder=given.folder.expanduser(),
        hosts=tuple(dict.fromkeys((*given.hosts, *([] if given.hosts else _own_names()), *_LOCAL))),
        hosts_named=given.hosts,
        roles=tuple(
            dict.fromkeys(
                (
                    *_roles(click.get_current_context(), init.params[3], (given.admin,)),
                    METRICS_ROLE,
                    *given.roles,
                )
            )
        ),
        listen=given.listen,
        days=given.days,
    )
    count = 0
    for made in run(wanted, now=datetime.datetime.now(datetime.UTC), dry=given.dry_run):
        count += made.new
        word = ("would make" if given.dry_run else "made") if made.new else "kept"
        click.echo(f"{word:10} {made.path}" + (f"  ({made.note})" if made.note else ""))
    if given.dry_run:
        return
    if given.context:
        _keep_context(given.context, wanted)
    click.echo("")
    click.echo(_what_next(wanted, wanted.folder / SETTINGS_FILE, given.context, nothing_new=not count))


def _own_names() -> list[str]:
    return [
        name for name in (socket.getfqdn(), socket.gethostname()) if re.fullmatch(r"[A-Za-z0-9.-]+", name)
    ]


def _place(wanted: Wanted) -> dict[str, str]:
    """Address and credentials of the broker, as fields of a context."""
    folder = wanted.folder.absolute()
    return {
        "url": "pulsar+ssl://localhost:6651",
        "admin_url": "https://localhost:8443",
        "token_file": str(folder / "tokens" / f"{wanted.roles[0]}.token"),
        "trust_certs": str(folder / "ca.pem"),
    }


def _keep_context(name: str, wanted: Wanted) -> None:
    from magnetar.cli.contexts import contexts
    from magnetar.cli.contexts.contexts import ContextPlace

    file = contexts.file_of(os.environ)
    known = contexts.load(file)
    place = ContextPlace(**_place(wanted))
    if known.places.get(name, place) != place:
        raise click.ClickException(f"context {name} is another broker's: choose another name, or remove it")
    known.places[name] = place
    known.current = known.current or name
    contexts.save(file, known)


def _what_next(wanted: Wanted, settings: Path, context: str | None, *, nothing_new: bool) -> str:
    folder = wanted.folder.absolute()
    place = _place(wanted)
    if context:
        how = f"magnetar --help    # `--context {context}` names this broker"
        on = f" --context {context}"
    else:
        words = ("context", "add", "secure", "--url", place["url"], "--admin-url", place["admin_url"])
        more = ("--token-file", place["token_file"], "--trust-certs", place["trust_certs"])
        how, on = shlex.join(("magnetar", *words, *more)), " --context secure"
    lines = [
        "everything is there already" if nothing_new else "everything is there",
        "",
        f"  Start      magnetar standalone --config {shlex.quote(str(settings))}",
        f"  Commands   {how}",
        f"  Clients    pulsar+ssl://localhost:6651, trusting {folder / 'ca.pem'},",
        f"             with the token in {place['token_file']}",
    ]
    lines += [
        f"  Allow      magnetar namespaces grant public/default {role} --action produce --action consume{on}"
        for role in wanted.roles[2:]
    ]
    lines.append(
        f"  Metrics    Prometheus reads them with {folder / 'tokens' / (wanted.roles[1] + '.token')}"
    )
    lines.append(f"  Then       keep {folder / 'ca.key'} where the broker's machine cannot reach it")
    return "\n".join(lines)
