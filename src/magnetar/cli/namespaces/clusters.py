"""`magnetar clusters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from magnetar.cli.verbs import Verb, group

_URLS: Final = (
    click.Option(
        ["--service-url", "serviceUrl"], help="Admin address of its brokers, http://HOST:8080.  [none]"
    ),
    click.Option(
        ["--service-url-tls", "serviceUrlTls"], help="Admin address over TLS, https://HOST:8443.  [none]"
    ),
    click.Option(
        ["--broker-url", "brokerServiceUrl"], help="Address of its brokers, pulsar://HOST:6650.  [none]"
    ),
    click.Option(
        ["--broker-url-tls", "brokerServiceUrlTls"], help="Address over TLS, pulsar+ssl://HOST:6651.  [none]"
    ),
)
_KEYS: Final = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")


def _body(given: Mapping[str, object]) -> object:
    return {key: given[key] for key in _KEYS if given[key]}


VERBS: Final = (
    Verb(name="list", help="Show all clusters.", path="clusters", example="clusters list"),
    Verb(
        name="get", help="Show the addresses of CLUSTER.", path="{cluster}", example="clusters get standalone"
    ),
    Verb(
        name="create",
        help="Register CLUSTER.",
        method="PUT",
        path="{cluster}",
        options=_URLS,
        body=_body,
        done="cluster {cluster} is registered",
        example="clusters create east --service-url http://east:8080 --broker-url pulsar://east:6650",
    ),
    Verb(
        name="update",
        help="Replace the addresses of CLUSTER.",
        method="POST",
        path="{cluster}",
        options=_URLS,
        body=_body,
        done="cluster {cluster} is changed",
        example="clusters update east --service-url http://east:8080",
    ),
    Verb(
        name="delete",
        help="Remove CLUSTER.",
        method="DELETE",
        path="{cluster}",
        question="Remove cluster {cluster}?",
        done="cluster {cluster} is removed",
        example="clusters delete east",
    ),
)

clusters = group("clusters", "Registered clusters and their addresses.", VERBS)
