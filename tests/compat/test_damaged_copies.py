"""An entry that every bookie has damaged: no reader is led past it until an operator gives it up."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pulsar
import pytest

from support.official import connect
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("folder")]

TOPIC = "persistent://public/default/hurt-everywhere"
DEADLINE_S = 60.0


def received(consumer: pulsar.Consumer) -> bytes:
    message = consumer.receive(timeout_millis=int(1_000 * DEADLINE_S))
    consumer.acknowledge(message)
    return bytes(message.data())


def test_an_entry_that_is_damaged_on_every_bookie_is_given_up(tmp_path: Path) -> None:
    process = StandaloneProcess(tmp_path, options=("--bookies", "2"))
    process.start()
    with closing(connect(process)) as client:
        client.subscribe(TOPIC, "s").close()
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(4):
            producer.send(b"message %d" % number)
    process.stop()
    for lost in (b"message 1", b"message 3"):
        damaged = 0
        for path in sorted((process.data_dir / "bookies").rglob("*.seg")):
            data = path.read_bytes()
            if lost in data:
                path.write_bytes(data.replace(lost, b"massage " + lost[-1:]))
                damaged += 1
        assert damaged == 2
    process.start()
    try:
        with closing(connect(process)) as client:
            consumer = client.subscribe(TOPIC, "s")
            last = consumer.get_last_message_id()
            assert last.entry_id() == 2, "the last one that can be read"
            assert received(consumer) == b"message 0"
            ledger = str(last.ledger_id())
            wait_until(
                lambda: f"accept-loss {ledger} 1" in process.log_text(),
                DEADLINE_S,
                "the log says how to go on",
            )
            client.create_producer(TOPIC).send(b"new")
            for entry in ("1", "3"):
                words = ["storage", "accept-loss", ledger, entry, "--yes", "--data", str(process.data_dir)]
                subprocess.run([sys.executable, "-m", "magnetar", *words], check=True, timeout=DEADLINE_S)
            assert [received(consumer) for _ in range(2)] == [b"message 2", b"new"]
    finally:
        process.kill()
