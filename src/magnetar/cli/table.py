"""The commands of `magnetar`, each in a module that is imported when it is called.

A new noun is a line here and a module with a click command of that name (`-` in a name is `_` in the
module's). Help is made from this table alone, so that it costs no import.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """Where a command is, and what it does."""

    place: str
    """`module:attribute`."""
    help: str
    """The first sentence of its help."""


COMMANDS: Final[dict[str, Command]] = {
    "pipeline": Command(
        "magnetar.cli.pipeline:pipeline", "Run PySpark jobs and declarative pipelines over topics."
    ),
    "standalone": Command(
        "magnetar.cli.standalone:standalone", "Run everything in one process, until Ctrl-C."
    ),
    "context": Command(
        "magnetar.cli.context_command:context",
        "Clusters by name: where they are, and as whom to call them.",
    ),
    "clusters": Command("magnetar.cli.clusters:clusters", "Clusters that know each other."),
    "brokers": Command("magnetar.cli.brokers:brokers", "Brokers: health, version, settings while they run."),
    "tenants": Command(
        "magnetar.cli.tenants:tenants",
        "Teams on the cluster: who administers them, where they may be.",
    ),
    "namespaces": Command(
        "magnetar.cli.namespaces:namespaces", "Namespaces: topics that share policies and permissions."
    ),
    "topics": Command(
        "magnetar.cli.topics:topics",
        "Topics: create, delete, look at, and why they do or do not deliver.",
    ),
    "subscriptions": Command("magnetar.cli.subscriptions:subscriptions", "Subscriptions of topics."),
    "schemas": Command("magnetar.cli.schemas:schemas", "Schemas of topics, by version."),
    "tokens": Command("magnetar.cli.tokens:tokens", "Keys and tokens for authentication (docs/security.md)."),
}
