"""`magnetar topics`: questions about topics, asked over the admin API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from magnetar.base.names import TopicName

_TIMEOUT_S = 30.0


@click.group()
def topics() -> None:
    """Questions about topics."""


@topics.command()
@click.argument("topic")
@click.option("--subscription", "-s", help="This one only.  [all]")
@click.option(
    "--admin-url",
    default="http://127.0.0.1:8080",
    envvar="MAGNETAR_ADMIN_URL",
    show_default=True,
    help="Where the admin API is.",
)
@click.option("--token", envvar="MAGNETAR_TOKEN", help="Token that names you to the admin API.")
@click.option(
    "--trust-certs",
    type=click.Path(path_type=Path),
    envvar="MAGNETAR_TRUST_CERTS",
    help="Certificates, PEM, of whom to trust over https.  [those of the system]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def explain(
    topic: str,
    subscription: str | None,
    admin_url: str,
    token: str | None,
    trust_certs: Path | None,
    as_json: bool,
) -> None:
    """Say of each subscription of TOPIC why it does or does not dispatch."""
    name = TopicName.parse(topic)
    path = f"{quote(name.tenant)}/{quote(name.namespace)}/{quote(name.local, safe='')}"
    if subscription is not None:
        path += f"/subscription/{quote(subscription, safe='')}"
    found = _get(f"{admin_url.rstrip('/')}/admin/v2/persistent/{path}/explain", token, trust_certs)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo(f"{name} has no subscriptions")
    for each in found:
        click.echo(f"{each['subscription']} on {each['topic']}: {each['state']}: {each['reason']}")
        for consumer in each["consumers"]:
            click.echo(f"  {consumer['name']}: {consumer['state']}: {consumer['reason']}")


def _get(url: str, token: str | None, trust_certs: Path | None) -> Any:
    """The document at a URL. Raises ClickException with what the server or the network said."""
    # Imported here, so that other commands need not wait for an HTTP client.
    import ssl
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise click.ClickException(f"{url} is not an HTTP URL; check --admin-url")
    request = Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        trust = ssl.create_default_context(cafile=trust_certs) if url.startswith("https:") else None
    except OSError as error:
        raise click.ClickException(f"{trust_certs}: {error}; check --trust-certs") from error
    try:
        with urlopen(request, timeout=_TIMEOUT_S, context=trust) as answer:  # the scheme was checked
            return json.load(answer)
    except HTTPError as error:
        try:
            reason = json.load(error).get("reason", error.reason)
        except ValueError:
            reason = error.reason
        raise click.ClickException(str(reason)) from error
    except (URLError, OSError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        remedy = "--trust-certs" if isinstance(cause, ssl.SSLError) else "--admin-url"
        raise click.ClickException(f"{url} cannot be reached: {cause}; check {remedy}") from error
