"""Errors are one tree, drawn as it is, and each boundary has an answer to all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import error_tree
import pytest

from magnetar.admin.calls.errors import STATUSES, RequestError
from magnetar.base.errors import MagnetarError
from magnetar.broker.errors import WIRE_CODES, RefusedError
from magnetar.broker.watchers.pattern import PatternError
from magnetar.cli import exit_codes
from magnetar.ledger.client import errors as ledger_errors
from magnetar.ledger.quorum.effects import Failure
from magnetar.websocket import errors as websocket_errors
from magnetar.wire import pulsar_pb2 as pb

SIGNALS = {
    "ShorterError": "an OSError, as others that end a copy: the caller tries again for a while",
    "SocketEnd": "how an endpoint of a WebSocket tells its loop to close it",
    "HandshakeEnd": "how the handshake of a WebSocket through the proxy ends: with a status",
    "InvalidTransitionError": "a bug of ours, as any failed assertion",
    "NotAtHandError": "a bookie's entries to their server: ask the device, then again",
    "_InterruptedError": "a signal to foreign code in the event loop, as a cancellation is",
    "_UnreadableError": "within one module: this vector of entries is built one by one",
}
"""Raised and caught within one room, always: no caller is told of these errors."""

BY_BASE = {PatternError: "told as any name that is none"}
"""Refusals that a table leaves to their base, each with the reason."""


def below(top: type[MagnetarError]) -> Iterator[type[MagnetarError]]:
    for each in top.__subclasses__():
        yield each
        yield from below(each)


def test_errors_are_one_tree() -> None:
    drawn = {line.rpartition("── ")[2].split(" ")[0] for line in error_tree.lines()}
    assert sorted(set(error_tree.errors()) - drawn - SIGNALS.keys()) == []
    assert sorted(SIGNALS.keys() - set(error_tree.errors())) == []


def test_the_drawing_is_of_today() -> None:
    text = error_tree.DOCUMENT.read_text(encoding="utf-8")
    assert text == error_tree.drawn(text), "run tools/error_tree.py"


@pytest.mark.parametrize(
    ("table", "tops"),
    [(WIRE_CODES, (RefusedError,)), (STATUSES, (RefusedError, RequestError))],
    ids=["wire codes", "statuses"],
)
def test_each_refusal_is_in_the_tables(
    table: Mapping[type[BaseException], int], tops: tuple[type[MagnetarError], ...]
) -> None:
    missing = [each for top in tops for each in below(top) if each not in table and each not in BY_BASE]
    assert missing == []
    assert any(root in table for root in MagnetarError.__mro__), "what no entry names has an answer too"


def test_answers_are_those_that_there_are() -> None:
    assert set(WIRE_CODES.values()) <= set(pb.ServerError.values())
    assert all(400 <= status < 600 for status in STATUSES.values())
    assert all(400 <= status < 600 for status in websocket_errors.STATUSES.values())


def test_each_code_of_the_protocol_has_a_status_on_websockets() -> None:
    assert set(websocket_errors.CODE_STATUSES) == set(pb.ServerError.values())
    assert set(exit_codes._BY_SERVER_ERROR) <= set(pb.ServerError.keys())


def test_each_way_to_fail_with_a_ledger_has_an_error() -> None:
    assert set(ledger_errors._ERRORS) | {Failure.GONE} == set(Failure)
