"""Shared parts of commands that call a broker: its address, credentials, and the output of answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

import click
from click.core import ParameterSource

from magnetar.cli.contexts import contexts
from magnetar.cli.contexts.contexts import ContextPlace
from magnetar.cli.output import FORMATS, show

if TYPE_CHECKING:
    from magnetar.adminclient.admin import Admin
    from magnetar.client.client import Client

_F = TypeVar("_F", bound=Callable[..., object])

_OF_PLACES: Final = ("url", "admin_url", "token", "token_file", "trust_certs")
"""Options whose values a context may have."""
_BINARY: Final = ("pulsar://", "pulsar+ssl://")
_FILE: Final = click.Path(path_type=str)


class Caller:
    """One run of a command. Made by `calls`."""

    def __init__(self, place: ContextPlace, *, output: str = "table", timeout_s: float = 30.0) -> None:
        self.place = place
        self.output = output
        self.timeout_s = timeout_s

    @property
    def admin_url(self) -> str:
        """URL of the admin API: the given one, or the usual port of the broker's host."""
        place = self.place
        if place.admin_url or not place.url:
            return place.admin_url or "http://127.0.0.1:8080"
        if not place.url.startswith(_BINARY):
            return place.url
        from urllib.parse import urlsplit

        host = urlsplit(place.url.partition(",")[0]).hostname or ""
        host = f"[{host}]" if ":" in host else host
        return f"https://{host}:8443" if place.url.startswith("pulsar+ssl") else f"http://{host}:8080"

    @property
    def service_url(self) -> str:
        """URL of the broker; with an admin address the broker is looked up."""
        place = self.place
        return place.url or place.admin_url or "pulsar://127.0.0.1:6650"

    def admin(self) -> Admin:
        """A client of the admin API; the caller closes it."""
        from magnetar.adminclient.admin import Admin
        from magnetar.adminclient.target import AdminTarget

        place = self.place
        return Admin(
            AdminTarget(
                url=self.admin_url,
                token=place.token,
                token_file=Path(place.token_file) if place.token_file else None,
                trust_certs=Path(place.trust_certs) if place.trust_certs else None,
                timeout_s=self.timeout_s,
            )
        )

    def token(self) -> str:
        """The token that is shown to the broker, or `file:` and its file; empty: none."""
        return self.place.token or (f"file:{self.place.token_file}" if self.place.token_file else "")

    def client(self) -> Client:
        """A client of the broker; the caller closes it."""
        from magnetar.client.client import Client
        from magnetar.client.options import ClientOptions

        place = self.place
        options = ClientOptions(
            token=self.token(),
            tls_trust_certs_file=place.trust_certs,
            request_timeout_s=self.timeout_s,
            retry_timeout_s=min(10.0, self.timeout_s),
        )
        return Client(self.service_url, options, admin_url=self.admin_url)

    def show(self, document: object, *, columns: Sequence[str] = ()) -> None:
        """Prints a document in the requested format."""
        show(document, self.output, columns=columns)


def _place(context: str | None, given: dict[str, str | None]) -> ContextPlace:
    """Address and credentials: from the command line, else the environment, else the context."""
    file = contexts.file_of(os.environ)
    known = contexts.load(file).place(context or "")
    values = {name: value or getattr(known, name) for name, value in given.items()}
    if given["token"] or given["token_file"]:
        # A caller that names one credential does not mean the other one of the context.
        values["token"], values["token_file"] = given["token"] or "", given["token_file"] or ""
    if given["url"] and not given["admin_url"]:
        values["admin_url"] = ""
    if given["admin_url"] and not given["url"]:
        values["url"] = ""
    return ContextPlace(**{name: value or "" for name, value in values.items()})


def _said(option: str, source: ParameterSource) -> bool:
    """Whether the value of an option of the running command comes from `source`."""
    return click.get_current_context().get_parameter_source(option) is source


_OPTIONS: Final = (
    click.option(
        "--context",
        envvar="MAGNETAR_CONTEXT",
        help="Name of a cluster, from `magnetar context list`.  [the current one]",
    ),
    click.option(
        "--url",
        envvar="MAGNETAR_URL",
        help="Address of the broker: pulsar://HOST:6650 or http://HOST:8080.  [this machine]",
    ),
    click.option(
        "--admin-url",
        envvar="MAGNETAR_ADMIN_URL",
        help="Address of the admin API, http://HOST:8080.  [port 8080 of the broker]",
    ),
    click.option("--token", envvar="MAGNETAR_TOKEN", help="Token for authentication.  [none]"),
    click.option(
        "--token-file", envvar="MAGNETAR_TOKEN_FILE", type=_FILE, help="File with the token.  [none]"
    ),
    click.option(
        "--trust-certs",
        envvar="MAGNETAR_TRUST_CERTS",
        type=_FILE,
        help="PEM file of the authorities to trust over TLS.  [those of the system]",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0.001),
        default=30.0,
        help="Seconds to wait for an answer.  [30]",
    ),
    click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
    ),
)


def calls(command: _F) -> _F:
    """Adds the options of commands that call a broker; the command's first argument is the Caller."""
    return _calling(command, _OPTIONS)


def calls_with_formats(formats: Sequence[str]) -> Callable[[_F], _F]:
    """As `calls`, for a command with formats of its own; the first is the default."""
    output = click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        help=f"Format of the output.  [{formats[0]}]",
    )
    return lambda command: _calling(command, (*_OPTIONS[:-1], output))


def _calling(command: _F, options: Sequence[Callable[[Callable[..., object]], Callable[..., object]]]) -> _F:
    @wraps(command)
    def run(context: str | None, timeout: float, output: str, **rest: object) -> object:
        given: dict[str, str | None] = {name: cast("str | None", rest.pop(name)) for name in _OF_PLACES}
        if _said("context", ParameterSource.COMMANDLINE):
            # A context named on the command line wins over the environment.
            given = {
                name: None if _said(name, ParameterSource.ENVIRONMENT) else value
                for name, value in given.items()
            }
        return command(Caller(_place(context, given), output=output, timeout_s=timeout), **rest)

    decorated: Callable[..., object] = run
    for option in reversed(options):
        decorated = option(decorated)
    return cast("_F", decorated)


def confirm(question: str, *, yes: bool) -> None:
    """Asks before a step that cannot be undone; ends the command unless the answer is yes."""
    if not yes:
        click.confirm(question, abort=True, err=True)
