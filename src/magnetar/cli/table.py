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
    "broker": Command(
        "magnetar.cli.processes.broker:broker",
        "Run one of several brokers that share the topics of a cluster, until Ctrl-C.",
    ),
    "proxy": Command(
        "magnetar.cli.processes.proxy:proxy",
        "Run a proxy before the brokers of a cluster, until Ctrl-C.",
    ),
    "cluster": Command(
        "magnetar.cli.processes.cluster:cluster",
        "Brokers that share the topics of a cluster (docs/cluster.md).",
    ),
    "bookie": Command(
        "magnetar.cli.processes.bookie:bookie", "Run one bookie of a BookKeeper cluster, until Ctrl-C."
    ),
    "autorecovery": Command(
        "magnetar.cli.processes.autorecovery:autorecovery",
        "Replace the copies of lost bookies, and decommission a bookie.",
    ),
    "storage": Command(
        "magnetar.cli.storage.storage:storage",
        "Messages that metadata does not name, and metadata that is doubted (docs/storage.md).",
    ),
    "context": Command(
        "magnetar.cli.contexts.context_command:context",
        "Clusters by name: addresses and credentials.",
    ),
    "clusters": Command(
        "magnetar.cli.namespaces.clusters:clusters", "Registered clusters and their addresses."
    ),
    "brokers": Command(
        "magnetar.cli.namespaces.brokers:brokers", "Brokers: health, version, settings while they run."
    ),
    "tenants": Command(
        "magnetar.cli.namespaces.tenants:tenants",
        "Tenants: teams on the cluster, with administrators and allowed clusters.",
    ),
    "namespaces": Command(
        "magnetar.cli.namespaces.namespaces:namespaces",
        "Namespaces: topics that share policies and permissions.",
    ),
    "topics": Command(
        "magnetar.cli.topics.topics:topics",
        "Topics: create, delete, inspect, and explain why they do or do not deliver.",
    ),
    "subscriptions": Command("magnetar.cli.topics.subscriptions:subscriptions", "Subscriptions of topics."),
    "schemas": Command("magnetar.cli.topics.schemas:schemas", "Schemas of topics, by version."),
    "transactions": Command(
        "magnetar.cli.topics.transactions:transactions",
        "Transactions: which are open, and how to end them.",
    ),
    "functions": Command(
        "magnetar.cli.functions.functions:functions",
        "Functions: code that runs beside the broker on messages of topics (docs/functions.md).",
    ),
    "packages": Command(
        "magnetar.cli.functions.packages:packages",
        "Packages: the code of functions by name and version (docs/functions.md).",
    ),
    "lake": Command(
        "magnetar.cli.storage.lake:lake",
        "Iceberg tables over topics: status, full checks, maintenance (docs/lake.md).",
    ),
    "backup": Command(
        "magnetar.cli.storage.backup:backup",
        "Backups of a data folder, made while the broker runs (docs/backup.md).",
    ),
    "restore": Command(
        "magnetar.cli.storage.backup:restore",
        "Restore a backup in REPOSITORY to a new data folder; the newest backup, unless BACKUP_ID is given.",
    ),
    "offload": Command(
        "magnetar.cli.storage.offload:offload",
        "Object stores of history and their owners (docs/tiered-storage.md).",
    ),
    "produce": Command(
        "magnetar.cli.messages.produce:produce",
        "Send MESSAGES to TOPIC, or each line of standard input; returns when all are durable.",
    ),
    "consume": Command(
        "magnetar.cli.messages.consume:consume",
        "Show messages of TOPIC in the order of their times; with --follow also new ones.",
    ),
    "peek": Command(
        "magnetar.cli.messages.search:peek",
        "Show the next messages of SUBSCRIPTION on TOPIC, without acknowledging them.",
    ),
    "search": Command(
        "magnetar.cli.messages.search:search",
        "Show the messages of TOPIC for which EXPRESSION is true; exit code 7 when there is none.",
    ),
    "sql": Command(
        "magnetar.cli.sql.sql_command:sql",
        "Ask topics with SQL: history and the newest messages as one table (docs/sql.md).",
    ),
    "replay": Command(
        "magnetar.cli.messages.replay:replay",
        "Publish messages of TOPIC again: to TARGET, or dead letters to their original topic.",
    ),
    "top": Command(
        "magnetar.cli.diagnosis.top:top", "Show the busiest topics or subscriptions, updated repeatedly."
    ),
    "bench": Command(
        "magnetar.cli.load.command:bench",
        "Load on a topic of a running broker, from one process, and its measurements (docs/cli.md).",
    ),
    "doctor": Command(
        "magnetar.cli.diagnosis.doctor:doctor",
        "Check disk, sync speed, limits and ports of this machine, and the broker's health and clock.",
    ),
    "explain": Command(
        "magnetar.cli.diagnosis.explain:explain",
        "Explain an error CODE, and what to do: a name or number of the protocol, or an HTTP status.",
    ),
    "debug": Command(
        "magnetar.cli.diagnosis.debug_command:debug", "Collect information for support in one file."
    ),
    "config": Command(
        "magnetar.cli.processes.config_command:config",
        "Settings of a broker: show those in force, check a file, explain a setting.",
    ),
    "completion": Command(
        "magnetar.cli.completion:completion",
        "Print the script that makes SHELL complete commands, options and their values.",
    ),
    "secure": Command(
        "magnetar.cli.security.secure:secure",
        "Certificates, tokens and settings of a broker with authentication (docs/security.md).",
    ),
    "auth": Command(
        "magnetar.cli.security.auth:auth",
        "Permissions: check whether a role may do something, and which grant is missing.",
    ),
    "tokens": Command(
        "magnetar.cli.security.tokens:tokens", "Keys and tokens for authentication (docs/security.md)."
    ),
    "users": Command(
        "magnetar.cli.security.users:users",
        "Users and passwords for authentication, in an htpasswd file (docs/security.md).",
    ),
}
