"""Filter expressions of a tenant that are made to be slow, and messages that are made for them; told by
`python -m bench hostile`.

Each subscription has another expression at its bounds. The publisher has a pace: what is measured is
what judging costs others, not what publishing does.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from typing import Final

from bench import protobuf as pb
from bench.attacks_of_bombs import call
from bench.attacks_of_tenants import Line, sent
from bench.connection import Connection
from bench.neighbours import NAMESPACE, Count
from bench.scan import BrokerAnswerError

_TOPIC: Final = f"persistent://{NAMESPACE}/filtered"
_PATH: Final = _TOPIC.replace("://", "/")
_SEARCH: Final = "contains(properties.a, properties.b)"
EXPRESSIONS: Final = (
    'key == "never"',
    _SEARCH,
    " or ".join([_SEARCH] * 22),
    "properties.b in " * 30 + "properties.a",
    " == ".join(["properties"] * 60),
    "lower(" * 60 + "properties.a" + ")" * 60 + ' == "x"',
    " or ".join(['properties.x == "k"'] * 35),
    "len(" + "lower([" * 40 + "properties.a" + "])" * 40 + ") > 1",
)
"""None holds, so everything is judged and acknowledged."""
_SUBSCRIPTIONS: Final = 4
"""With each expression."""
_PAUSE_S: Final = 0.005
"""Between two messages."""
_DEADLINE_S: Final = 60.0
_BATCH: Final = 4_000


def _metadata(name: str, *properties: tuple[str, str], messages: int = 0, size: int = 0) -> bytes:
    fields = pb.field(1, name) + pb.field(2, 0) + pb.field(3, time.time_ns() // 1_000_000)
    for key, value in properties:
        fields += pb.field(4, pb.field(1, key) + pb.field(2, value))
    return fields + (pb.field(9, size) + pb.field(11, messages) if messages else b"")


def _messages(name: str) -> list[bytes]:
    """Texts that are searched slowly, many properties, many messages; as SENDs."""
    plain = b"".join([(2).to_bytes(4, "big") + pb.field(3, 0)] * _BATCH)
    return [
        sent(
            _metadata(name, ("a", "A" * chars), ("b", "A" * (chars // 4) + "B" + "A" * (chars // 4))), b"x", 0
        )
        for chars in (300, 3_000, 30_000)
    ] + [
        sent(_metadata(name, ("a", "\u0130" * 30_000)), b"x", 0),
        sent(_metadata(name, *[(f"{number:x}", "") for number in range(5_000)]), b"x", 0),
        sent(_metadata(name, messages=_BATCH, size=len(plain)), plain, 0, messages=_BATCH),
    ]


def filters(service_url: str, http_url: str, count: Count) -> None:
    """Publishes to slow subscriptions; done counts what the broker stored."""
    call(http_url, "PUT", f"/admin/v2/{_PATH}")
    call(http_url, "POST", f"/admin/v2/{_PATH}/entryFilters", {"entryFilterNames": "expression"})
    names = [f"slow-{number}" for number in range(_SUBSCRIPTIONS * len(EXPRESSIONS))]
    for name, text in zip(names, itertools.cycle(EXPRESSIONS), strict=False):
        call(http_url, "PUT", f"/admin/v2/{_PATH}/subscription/{name}", "earliest")
        call(
            http_url, "PUT", f"/admin/v2/{_PATH}/subscription/{name}/properties", {"filter.expression": text}
        )

    def reader(name: str) -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError):
                connection = Connection(service_url)
                connection.subscribe(_TOPIC, name, durable=True, earliest=True)
                connection.flow(1_000_000)
                while connection.socket.recv(1 << 20):
                    pass
            time.sleep(_PAUSE_S)  # the pace of the attack

    def publisher() -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError):
                connection = Line(service_url, deadline_s=_DEADLINE_S)
                for each in itertools.cycle(_messages(connection.open_producer(_TOPIC, 1))):
                    connection.ask(each, 1, count)
                    time.sleep(_PAUSE_S)  # the pace of the attack

    for name in names:
        threading.Thread(target=reader, args=(name,), daemon=True).start()
    threading.Thread(target=publisher, daemon=True).start()
    count.say_for_ever()


ATTACKS: Final[dict[str, Callable[[str, str, Count], None]]] = {"filters": filters}
