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
    "produce": Command(
        "magnetar.cli.messages.produce:produce",
        "Send MESSAGES to TOPIC, or each line of standard input; returns when all are durable.",
    ),
    "consume": Command(
        "magnetar.cli.messages.consume:consume",
        "Show messages of TOPIC: what is there, in the order of their times; with --follow also what comes.",
    ),
    "peek": Command(
        "magnetar.cli.messages.search:peek",
        "Show what SUBSCRIPTION of TOPIC has before it, and take nothing.",
    ),
    "search": Command(
        "magnetar.cli.messages.search:search",
        "Show the messages of TOPIC for which EXPRESSION holds; ends with 7 when there is none.",
    ),
    "replay": Command(
        "magnetar.cli.messages.replay:replay",
        "Send messages of TOPIC once more: to TARGET, or dead letters back to where they come from.",
    ),
    "tokens": Command("magnetar.cli.tokens:tokens", "Keys and tokens for authentication (docs/security.md)."),
}
