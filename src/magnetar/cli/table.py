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
        "magnetar.cli.pipeline:pipeline",
        "Run PySpark jobs and declarative pipelines over topics (docs/pipelines.md).",
    ),
    "standalone": Command(
        "magnetar.cli.processes.standalone:standalone", "Run everything in one process, until Ctrl-C."
    ),
    "bookie": Command(
        "magnetar.cli.processes.bookie:bookie", "Run one bookie of a BookKeeper cluster, until Ctrl-C."
    ),
    "autorecovery": Command(
        "magnetar.cli.processes.autorecovery:autorecovery",
        "Copies of lost bookies are made anew: a node that does it, and taking a bookie out for good.",
    ),
    "storage": Command(
        "magnetar.cli.storage.storage:storage",
        "Messages on disk that metadata does not name, and metadata that is in doubt (docs/storage.md).",
    ),
    "context": Command(
        "magnetar.cli.contexts.context_command:context",
        "Clusters by name: where they are, and as whom to call them.",
    ),
    "clusters": Command("magnetar.cli.namespaces.clusters:clusters", "Clusters that know each other."),
    "brokers": Command(
        "magnetar.cli.namespaces.brokers:brokers", "Brokers: health, version, settings while they run."
    ),
    "tenants": Command(
        "magnetar.cli.namespaces.tenants:tenants",
        "Teams on the cluster: who administers them, where they may be.",
    ),
    "namespaces": Command(
        "magnetar.cli.namespaces.namespaces:namespaces",
        "Namespaces: topics that share policies and permissions.",
    ),
    "topics": Command(
        "magnetar.cli.topics.topics:topics",
        "Topics: create, delete, look at, and why they do or do not deliver.",
    ),
    "subscriptions": Command("magnetar.cli.topics.subscriptions:subscriptions", "Subscriptions of topics."),
    "schemas": Command("magnetar.cli.topics.schemas:schemas", "Schemas of topics, by version."),
    "lake": Command(
        "magnetar.cli.storage.lake:lake",
        "Iceberg tables over topics: what there is, full checks, upkeep (docs/lake.md).",
    ),
    "backup": Command(
        "magnetar.cli.storage.backup:backup",
        "Copies of a data folder, made while it is used (docs/backup.md).",
    ),
    "restore": Command(
        "magnetar.cli.storage.backup:restore",
        "Make a data folder of a backup in REPOSITORY, the newest one unless BACKUP_ID names another.",
    ),
    "offload": Command(
        "magnetar.cli.storage.offload:offload",
        "Object stores of history: whose they are, and taking one over (docs/tiered-storage.md).",
    ),
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
    "top": Command(
        "magnetar.cli.diagnosis.top:top", "Show the topics or subscriptions that move most, again and again."
    ),
    "bench": Command(
        "magnetar.cli.load.command:bench",
        "Load on a topic of a running broker, and how it fares; one process of it (docs/cli.md).",
    ),
    "doctor": Command(
        "magnetar.cli.diagnosis.doctor:doctor",
        "Look at disk, sync speed, limits and ports of this machine, at the broker's health and its clock.",
    ),
    "explain": Command(
        "magnetar.cli.diagnosis.explain:explain",
        "Say what an error CODE means and what to do: a name or number of the protocol, or an HTTP status.",
    ),
    "debug": Command(
        "magnetar.cli.diagnosis.debug_command:debug", "For who helps: what is going on, in one file."
    ),
    "config": Command(
        "magnetar.cli.processes.config_command:config",
        "Settings of a broker: what is in force, whether a file is right, what a setting is.",
    ),
    "completion": Command(
        "magnetar.cli.completion:completion",
        "Print what makes SHELL complete commands, options and their values.",
    ),
    "secure": Command(
        "magnetar.cli.security.secure:secure",
        "Certificates, tokens and settings of a broker that asks who comes (docs/security.md).",
    ),
    "auth": Command(
        "magnetar.cli.security.auth:auth",
        "Rights: whether a role may do something, and which grant is missing.",
    ),
    "tokens": Command(
        "magnetar.cli.security.tokens:tokens", "Keys and tokens for authentication (docs/security.md)."
    ),
    "users": Command(
        "magnetar.cli.security.users:users",
        "Users and passwords for authentication, in an htpasswd file (docs/security.md).",
    ),
}
