"""Parses the paths of WebSockets (pure).

    /ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}
    /ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}
    /ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}
    /ws/v3/consumer/{subscription}?topics=a,b

Paths without `v2` have a cluster after the tenant, as in old topic names. Old names are not supported; if the
cluster is this one, it is ignored. Names are percent-encoded.

Source: Pulsar's WebSocket API.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.base.names import InvalidNameError, TopicName, decode_local
from magnetar.websocket.errors import BadQueryError, NoSuchPathError


class SocketRole(enum.Enum):
    """The kind of a socket."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    READER = "reader"


@dataclass(frozen=True, slots=True)
class Target:
    """The kind and the names in a path."""

    role: SocketRole
    topics: tuple[TopicName, ...]
    """The topics; only a consumer may have several."""
    subscription: str = ""


def target_of(raw_path: str, query: Mapping[str, str], cluster: str) -> Target:
    """Parses a path in its encoded form. Raises NoSuchPathError, BadQueryError."""
    parts = raw_path.strip("/").split("/")
    if parts[:3] == ["ws", "v3", "consumer"] and len(parts) == 4:
        return _several(decode_local(parts[3]), query)
    if parts[:2] == ["ws", "v2"]:
        role, names = _role(parts, 2), parts[3:]
    elif parts[:1] == ["ws"]:
        role, names = _role(parts, 1), parts[2:]
        if len(names) > 2:
            if names[2] != cluster:
                raise NoSuchPathError(f"cluster {names[2]!r} is not this one, which is {cluster!r}")
            del names[2]
    else:
        raise NoSuchPathError("no such path")
    expected = 5 if role is SocketRole.CONSUMER else 4
    if len(names) != expected:
        raise NoSuchPathError(f"the path of a {role.value} has {expected} names behind its kind")
    try:
        topic = TopicName.of(names[0], names[1], names[2], decode_local(names[3]))
    except InvalidNameError as error:
        raise BadQueryError(str(error)) from error
    subscription = decode_local(names[4]) if role is SocketRole.CONSUMER else ""
    if role is SocketRole.CONSUMER and not subscription:
        raise BadQueryError("the subscription has no name")
    return Target(role, (topic,), subscription)


def _role(parts: list[str], at: int) -> SocketRole:
    try:
        return SocketRole(parts[at])
    except (ValueError, IndexError):
        raise NoSuchPathError("the path names no producer, consumer or reader") from None


def _several(subscription: str, query: Mapping[str, str]) -> Target:
    topics = query.get("topics", "")
    if not subscription:
        raise BadQueryError("the subscription has no name")
    if not topics:
        raise BadQueryError("topics names them, with commas in between")
    try:
        names = tuple(dict.fromkeys(TopicName.parse(each) for each in topics.split(",")))
    except InvalidNameError as error:
        raise BadQueryError(str(error)) from error
    return Target(SocketRole.CONSUMER, names, subscription)
