"""Names of tables in SQL, and the topics that they stand for. Pure.

| Table | Topic |
|---|---|
| `orders` | persistent://public/default/orders |
| `acme.sales.orders` | persistent://acme/sales/orders |
| `"acme/sales/orders"`, `"persistent://acme/sales/orders"` | the same |
| `"orders-partition-2"` | one partition |
"""

from __future__ import annotations

import re
from typing import Final

from magnetar.base.names import InvalidNameError, TopicName
from magnetar.sql.errors import UnknownTopicError

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def topic_of(catalog: str, schema: str, table: str) -> TopicName:
    """The topic of a table; empty texts for parts that the statement does not name.

    Raises UnknownTopicError for a name that no topic can have.
    """
    shown = ".".join(part for part in (catalog, schema, table) if part)
    if schema and not catalog:
        raise UnknownTopicError(shown, "write tenant.namespace.topic, or the topic alone in public/default")
    text = f"{catalog}/{schema}/{table}" if catalog else table
    try:
        topic = TopicName.parse(text)
    except InvalidNameError as error:
        raise UnknownTopicError(shown, str(error)) from error
    if not topic.persistent:
        raise UnknownTopicError(shown, "topics that are not persistent store nothing")
    return topic


def table_of(topic: TopicName) -> str:
    """The shortest table name of a topic, with quotes where SQL needs them."""
    if (topic.tenant, topic.namespace) == ("public", "default"):
        return quoted(topic.local)
    return ".".join(map(quoted, (topic.tenant, topic.namespace, topic.local)))


def quoted(name: str) -> str:
    """An identifier, in quotes unless it is plain."""
    return name if _PLAIN.fullmatch(name) else always_quoted(name)


def always_quoted(name: str) -> str:
    """An identifier in quotes."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
