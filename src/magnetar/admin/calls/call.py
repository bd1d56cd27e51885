"""One call of the admin API: the argument and the result of a handler.

A handler is `async def handler(call: Call) -> object`. Its result becomes the answer:

    None            204 without a body
    Text            200 text/plain
    Raw             its own status, headers and body
    StoredBody      200 with the bytes of a file
    Streamed        200 and a body that is made while it is sent
    anything else   200 application/json

Handlers raise errors; `errors.py` maps them to statuses.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from magnetar.admin.calls import other_brokers
from magnetar.admin.calls.coercion import LONG_BITS, as_boolean, as_whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.calls.leaving import told_of_leaving
from magnetar.admin.calls.other_brokers import Exchange
from magnetar.admin.calls.rates import Rates
from magnetar.auth.identity import Identity
from magnetar.base.asgi import Receive
from magnetar.base.ids import EARLIEST, LATEST, LedgerId, Position
from magnetar.base.names import (
    NON_PERSISTENT,
    PERSISTENT,
    NamespaceName,
    TopicName,
    decode_local,
    is_entity_name,
)
from magnetar.base.query_bounds import QueryBounds
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.handlers.texts import NAME_CHARS_MAX, properties_fault
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import SingleFlight
from magnetar.sql.serving.query_places import QueryPlaces

BODY_BYTES_MAX = 1 << 20
"""Most bytes of a body; the largest legal body is a schema."""


class Text(str):
    """An answer that is plain text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer with its own status, headers and bytes."""

    body: bytes | memoryview
    content_type: str = "application/octet-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredBody:
    """An answer that is a file; it is read as the client takes it."""

    path: Path
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer with status 200 whose body is made while it is sent.

    When `pieces` raises a MagnetarError, the connection is closed in the middle of the answer: no client
    takes a part for the whole.
    """

    pieces: AsyncIterator[bytes]
    content_type: str
    close: Callable[[], None]
    """Called once the body is sent, or cannot be; also when the client goes while it waits for a piece."""
    headers: Mapping[str, str] = field(default_factory=dict)


AUTHORITATIVE: Final = "authoritative"
"""Query parameter of a redirect: this broker was chosen for a topic that has no owner."""


def as_json(document: object) -> str:
    """A document as JSON text for answers."""
    # ASCII: a lone surrogate in a client's text has no UTF-8 form but can still be shown.
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Service:
    """State of the admin service besides the broker."""

    rates: Rates
    http_port: int
    loopback_only: bool
    """Whether only this machine can reach the admin port."""
    checks: SingleFlight[None] = field(default_factory=SingleFlight)
    """The running health check, which concurrent calls share."""
    exchanged: Exchange = other_brokers.send
    """How other brokers are asked."""
    queries: QueryPlaces = field(default_factory=lambda: QueryPlaces(QueryBounds()))
    """Running queries of SQL; all admin ports of a broker share them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request after routing."""

    broker: Broker
    service: Service
    path: str
    """Path template of the route, with the names of its variables."""
    params: Mapping[str, str]
    """Variables of the path, decoded."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Headers by name, in any case."""
    body: bytes
    host: str
    """Host under which the client called, in the form for URLs."""
    peer: str = "?"
    """Address of the client, for logs."""
    identity: Identity | None = None
    """The caller's identity; None without authentication."""
    secure: bool = False
    """Whether the call came over TLS."""
    receive: Receive | None = None
    """What comes from the client behind its call: that it has gone."""
    pieces: AsyncIterator[bytes] | None = None
    """The body as it arrives, in place of `body`, of an Operation with an upload. Raises TooSlowError."""

    def told_of_leaving(self, tell: Callable[[], None]) -> AbstractContextManager[None]:
        """Within it, `tell` is called when the client has gone: for handlers that work for seconds."""
        assert self.receive is not None, "it came from a client"
        return told_of_leaving(self.receive, tell)

    # -- names ---------------------------------------------------------------------------------------

    def name(self, param: str) -> str:
        """A variable that names a tenant or cluster. Raises PreconditionFailedError."""
        text = self.params[param]
        if not is_entity_name(text):
            raise PreconditionFailedError(
                f"{param.capitalize()} name is not valid",
                remedy=f"a {param} holds letters, digits, _-=:. only, not {text[:200]!r}",
            )
        return text

    def namespace(self) -> NamespaceName:
        """The namespace of the path. Raises InvalidNamespaceNameError."""
        return NamespaceName.parse(f"{self.params['tenant']}/{self.params['namespace']}")

    def topic(self) -> TopicName:
        """The topic of the path. Raises InvalidTopicNameError."""
        params = self.params
        return TopicName.of(self.domain, params["tenant"], params["namespace"], params["topic"])

    @property
    def policy(self) -> str:
        """Last part of the path, which names the policy."""
        return self.path.rpartition("/")[2]

    @property
    def domain(self) -> str:
        """Domain of the topics in the path."""
        return self.params.get("domain", PERSISTENT)

    # -- query ---------------------------------------------------------------------------------------

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A query parameter that is true or false. Raises BadRequestError."""
        text = self.query.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise BadRequestError(f"query parameter {name} must be true or false, not {text!r}")
        return text.lower() == "true"

    # -- numbers -------------------------------------------------------------------------------------

    def integer(self, param: str) -> int:
        """A variable of the path that is a number >= 0. Raises BadRequestError."""
        return natural(self.params[param], param)

    # -- body ----------------------------------------------------------------------------------------

    def json(self) -> object:
        """The body; None when it is empty. Raises BadRequestError."""
        if not self.body.strip():
            return None
        try:
            return json.loads(self.body, parse_constant=_not_finite, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"the body is not JSON: {error}") from error

    def json_object(self) -> dict[str, Any]:
        """The body, an object; {} when it is empty. Raises BadRequestError."""
        document = self.json()
        if document is None:
            return {}
        if not isinstance(document, dict):
            raise BadRequestError("the body must be a JSON object")
        return document

    def json_given(self) -> object:
        """The body, which must not be empty. Raises BadRequestError."""
        if not self.body.strip():
            raise BadRequestError("The request entity cannot be empty.")
        return self.json()

    def json_bool(self) -> bool:
        """The body, true or false; null is false. Raises BadRequestError."""
        return as_boolean(self.json_given()) or False

    def json_strings(self) -> dict[str, str]:
        """The body, an object of strings. Raises BadRequestError, PreconditionFailedError for too many."""
        document = self.json_object()
        if not all(isinstance(value, str) for value in document.values()):
            raise BadRequestError("the values of the body must be strings")
        return check_properties(document)


Document = dict[str, Any]
"""An object in an answer of the admin API, in the form that Pulsar's has."""

Handler = Callable[[Call], Awaitable[object]]

Route = tuple[str, str, Handler]
"""Method, path with `{variables}`, handler."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler with its part of the OpenAPI document; the first line of its docstring is the summary."""

    handler: Handler
    body: Mapping[str, object] | None = None
    """JSON schema of the body; None: no body or any."""
    answer: Mapping[str, object] | None = None
    """JSON schema of the answer with status 200; None: any."""
    query: tuple[str, ...] = ()
    """Parameters of the query."""
    upload: Mapping[str, str] | None = None
    """Parts of a multipart body, `file` or `text`, which the handler reads as they arrive; None: the body is
    read before, and is small."""
    contents: tuple[str, ...] = ()
    """Media types of the answer with status 200; empty: JSON, or any where `answer` is None."""

    def __call__(self, call: Call) -> Awaitable[object]:
        return self.handler(call)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _not_finite(text: str) -> float:
    raise ValueError(f"{text[:40]} is not a number of JSON that can be kept")


def natural(text: str, what: str) -> int:
    """A number >= 0 of at most 64 bits. Raises BadRequestError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadRequestError(f"{what} must be a number, not {text[:40]!r}")
    return int(text)


def whole(value: object) -> int | None:
    """A whole number of a body, which some clients send as a JSON text; None for other values."""
    try:
        return as_whole(value, bits=LONG_BITS)
    except BadRequestError:
        return None


def decoded(params: Mapping[str, str]) -> dict[str, str]:
    """Decodes the variables of a path: UTF-8, percent-encoded, "+" is a space.

    Raises PreconditionFailedError for a value that is longer than the binary protocol allows.
    """
    found = {name: decode_local(value) for name, value in params.items()}
    for name, value in found.items():
        if name != "topic" and len(value) > NAME_CHARS_MAX:
            # A topic's name has its own bound and error.
            raise PreconditionFailedError(f"{name} has {len(value)} characters; {NAME_CHARS_MAX} are allowed")
    return found


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties. Raises PreconditionFailedError when they exceed the limits of the protocol."""
    if (fault := properties_fault("properties", properties.items())) is not None:
        raise PreconditionFailedError(fault)
    return dict(properties)


def message_position(document: object) -> tuple[Position, bool]:
    """Position and `isExcluded` of a message id in the form of Pulsar's admin API: an object
    `{"ledgerId", "entryId", ...}`, "latest" or "earliest".

    Raises BadRequestError.
    """
    if document == "latest":
        return LATEST, False
    if document == "earliest":
        return EARLIEST, False
    if not isinstance(document, dict):
        raise BadRequestError('a message id is {"ledgerId": n, "entryId": n}, "latest" or "earliest"')
    numbers = []
    for key in ("ledgerId", "entryId"):
        value = document.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 63:
            raise BadRequestError(f"{key} of a message id must be a number of 64 bits")
        numbers.append(value)
    return Position(LedgerId(numbers[0]), numbers[1]), document.get("isExcluded") is True


def position_document(position: Position, topic: TopicName) -> dict[str, int]:
    """A position as Pulsar's admin API writes message ids."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": topic.partition,
    }


def is_domain(text: str) -> bool:
    """Whether `text` is a topic's domain."""
    return text in (PERSISTENT, NON_PERSISTENT)
