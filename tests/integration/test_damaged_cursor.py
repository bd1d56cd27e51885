"""Bits flip in what a subscription wrote: its topic loads, and gives again rather than too little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from magnetar.bookie.blocks import HEADER_BYTES, decode_header, first_salt
from magnetar.bookie.segment import DATA_OFFSET
from support.raw_client import RawClient
from support.standalone import StandaloneProcess
from support.storage import flip, segments

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

TOPIC = "persistent://public/default/damaged"
COUNT = 200


def cursor_of(process: StandaloneProcess) -> dict[str, Any]:
    found: dict[str, Any] = process.admin("GET", "persistent/public/default/damaged/internalStats")["cursors"]
    return dict(found["s"])


def blocks_of_ledger(path: Path, ledger_id: int) -> list[tuple[int, int]]:
    """Offset and size of the ledger's blocks in a segment."""
    data = path.read_bytes()
    offset = DATA_OFFSET
    salt = first_salt(data[offset : offset + HEADER_BYTES], offset)
    found = []
    while salt is not None and (header := decode_header(data, offset, salt, offset)) is not None:
        if header.ledger_id == ledger_id:
            found.append((offset, header.size))
        offset += header.size
    return found


def test_a_subscription_with_a_damaged_ledger_delivers_what_is_not_acknowledged(
    standalone_folder: StandaloneProcess,
) -> None:
    process = standalone_folder.start()
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.open_consumer(TOPIC, permits=COUNT)
        positions = client.publish(range(COUNT))
        client.wait(lambda: len(client.messages) == COUNT, "messages")
        acknowledged = positions[1::2]
        for start in range(0, len(acknowledged), 10):
            client.ack(*acknowledged[start : start + 10])
            # Each answer comes behind the acknowledgements before it, so that they become many deltas.
            client.publish(range(COUNT + start, COUNT + start + 1))
    cursor = cursor_of(process)
    process.kill()
    places = [
        (path, place)
        for path in segments(process.data_dir / "bookie")
        for place in blocks_of_ledger(path, cursor["cursorLedger"])
    ]
    path, (offset, size) = places[len(places) // 2]
    flip(path, offset + HEADER_BYTES + (size - HEADER_BYTES) // 2)
    process.start()
    with RawClient(process.broker_url) as client:
        client.open_consumer(TOPIC, permits=4 * COUNT)
        wanted = set(positions) - set(acknowledged)
        client.wait(
            lambda: wanted <= {message.position for message in client.messages},
            "everything that was not acknowledged",
        )
    assert "damaged from entry" in cursor_of(process)["recoveredFromDamage"]
    assert "falls back to its last readable state" in process.log_text()
