"""Documents of messages, whole and in pieces."""

from __future__ import annotations

import json
import os
from base64 import b64decode

import pytest

from magnetar.base.ids import Position
from magnetar.websocket import documents
from magnetar.websocket.deliveries import Incoming


@pytest.mark.parametrize("size", [0, 1, 2, 3, 300, 100_000, 400_001])
def test_a_document_in_pieces_is_the_document(size: int) -> None:
    """One frame of a message of 64 MiB kept the event loop for 200 ms."""
    body = os.urandom(size)
    message = Incoming(Position(1, 2), -1, 0, body, "k", False, {"a": 'b"'}, 1, 2, 3)
    pieces = list(documents.delivered_in_pieces(message, "id"))
    assert max(map(len, pieces)) <= 256 << 10
    document = json.loads("".join(pieces))
    assert b64decode(document["payload"], validate=True) == body
    assert "".join(pieces) == documents.delivered(message, "id")
    assert document["properties"] == {"a": 'b"'}
