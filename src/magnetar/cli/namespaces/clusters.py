"""`magnetar clusters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from magnetar.cli.verbs import Verb, group

_URLS: Final = (
    click.Option(["--service-url", "serviceUrl"], help="http://host:8080 of its brokers."),
    click.Option(["--service-url-tls", "serviceUrlTls"], help="https://host:8443 of its brokers."),
    click.Option(["--broker-url", "brokerServiceUrl"], help="pulsar://host:6650 of its brokers."),
    click.Option(["--broker-url-tls", "brokerServiceUrlTls"], help="pulsar+ssl://host:6651 of its brokers."),
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
        done="cluster {cluster} is known",
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
        question="Forget cluster {cluster}?",
        done="cluster {cluster} is forgotten",
        example="clusters delete east",
    ),
)

clusters = group("clusters", "Clusters that know each other.", VERBS)
