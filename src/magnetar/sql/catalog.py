"""The topics of a cluster as tables, and their columns."""

from __future__ import annotations

import re
from typing import Final

from magnetar.base.names import InvalidNameError, NamespaceName, TopicName
from magnetar.client.client import Client
from magnetar.sql.errors import StatementError, UnknownTopicError
from magnetar.sql.native_files import duck_type
from magnetar.sql.table_names import table_of, topic_of
from magnetar.sql.topic_tables import table_of_topic

_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^".\s]+)')


def topics_of(client: Client, where: str) -> list[str]:
    """The tables of a namespace, `tenant.namespace` or `tenant/namespace`; empty: public/default.

    Partitions of a topic are one table. Raises StatementError, ClientError.
    """
    parts = split_name(where.replace("/", ".")) if where else ["public", "default"]
    try:
        namespace = NamespaceName.parse("/".join(parts))
    except InvalidNameError as error:
        raise StatementError(f"SHOW TOPICS FROM takes tenant.namespace: {error}") from error
    found = set()
    for text in client.topics(namespace):
        try:
            topic = TopicName.parse(text)
        except InvalidNameError:
            continue  # Topic names of Pulsar 1 are skipped.
        if not topic.local.startswith("__"):
            found.add(table_of(topic.base))
    return sorted(found)


def columns_of(client: Client, name: str) -> list[tuple[str, str]]:
    """The columns of a table with their types in SQL. Raises SqlError, ClientError."""
    parts = split_name(name)
    if not 1 <= len(parts) <= 3:
        raise UnknownTopicError(name, "write tenant.namespace.topic, or the topic alone in public/default")
    topic = topic_of(*["", "", *parts][-3:])
    there = client.topics(topic.namespace_name)
    if not client.partitions(topic) and str(topic) not in there:
        raise UnknownTopicError(table_of(topic), "SHOW TOPICS lists those that are there")
    table = table_of_topic(client, topic)
    return [(field.name, duck_type(field.type)) for field in table.columns]


def split_name(text: str) -> list[str]:
    """The parts of a name in SQL, with the quotes removed. Raises StatementError."""
    parts, at = [], 0
    text = text.strip()
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise StatementError(f"{text} cannot be the name of a table")
        parts.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        at = found.end()
        if at < len(text):
            if text[at] != ".":
                raise StatementError(f"{text} cannot be the name of a table")
            at += 1
    return parts
