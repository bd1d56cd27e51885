"""The largest messages that a broker takes, on every kind of store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pulsar
import pytest

from support.official import connect
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("folder")]

MIB = 1 << 20
METADATA = 60
"""The client counts what a message says of itself: some 40 bytes here."""


@pytest.mark.parametrize("bookies", [0, 2])
@pytest.mark.parametrize("largest", [5 * MIB, 9 * MIB])
def test_the_largest_message_is_kept(tmp_path: Path, bookies: int, largest: int) -> None:
    """A packet to a bookie has more around it than the message: it must not be too large for that."""
    settings = tmp_path / "standalone.toml"
    settings.write_text(f"max_message_bytes = {largest}\n")
    options = ("--config", str(settings), *(("--bookies", str(bookies)) if bookies else ()))
    bodies = [b"a" * (largest - METADATA), b"b" * (largest - METADATA - 1), b"c"]
    process = StandaloneProcess(tmp_path, options=options)
    process.start()
    try:
        with closing(connect(process)) as client:
            producer = client.create_producer("t", batching_enabled=False)
            for body in bodies:
                producer.send(body)
        process.kill()
        process = StandaloneProcess(tmp_path, options=options)
        process.start()
        with closing(connect(process)) as client:
            reader = client.create_reader("t", pulsar.MessageId.earliest)
            assert [reader.read_next(60_000).data() for _ in bodies] == bodies
            assert not reader.has_message_available()
    finally:
        process.stop()
