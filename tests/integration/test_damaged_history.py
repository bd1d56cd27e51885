"""Damage in the only copy of a ledger, in an object store: it costs its entries, when an operator says so."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pulsar
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from support.files import files_in
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, PATH, HistoryTopic
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]


def magnetar(*words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "magnetar", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def damage_payloads(file: Path) -> None:
    """One bit in the page that has the payloads of the first row group."""
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    column = next(column for column in columns if column.path_in_schema == "payload")
    data = bytearray(file.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    file.write_bytes(data)


def receive(consumer: pulsar.Consumer) -> pulsar.Message:
    message = consumer.receive(timeout_millis=int(1_000 * DEADLINE_S))
    consumer.acknowledge(message)
    return message


def with_damage(process: StandaloneProcess, loss: str) -> tuple[int, int, int]:
    """A topic with two ledgers in the store alone, one damaged: that one, its last entry, the other one."""
    with process:
        history = HistoryTopic(process)
        for _ in range(2):
            history.fill_ledger(20)
        history.offload()
        history.delete_local()
        hurt, whole = history.ledgers()
        (file,) = files_in(process.data_dir / "offloaded", f"{hurt['ledgerId']:019d}-*.parquet")
        if loss == "pages":
            damage_payloads(file)
        else:
            file.unlink()
    # What was read before is in no cache any more.
    return hurt["ledgerId"], hurt["entries"] - 1, whole["ledgerId"]


def subscribed(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    return client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)


@pytest.mark.parametrize("loss", ["pages", "object"])
def test_consumers_wait_in_front_of_it_until_it_is_given_up(tmp_path: Path, loss: str) -> None:
    process = StandaloneProcess(tmp_path, environment=KEEP_EVERYTHING)
    hurt, last, whole = with_damage(process, loss)
    words = ["storage", "accept-loss", str(hurt), "0", "--to", str(last)]
    with process:
        history = HistoryTopic(process)
        with closing(history.client()) as client:
            consumer = subscribed(client, history.topic)

            def explained() -> bool:
                subscriptions = process.admin("GET", f"{PATH}/stats")["subscriptions"]
                return " ".join(words) in (subscriptions["s"].get("whyIdle") or "")

            wait_until(explained, DEADLINE_S, "why nothing comes is said, and what gives it up")
            magnetar(*words, "--yes", "--data", str(process.data_dir))
            found = consumer.receive(timeout_millis=int(1_000 * DEADLINE_S)).message_id()
            assert (found.ledger_id(), found.entry_id()) == (whole, 0)
            assert "are skipped" in process.log_text()


@pytest.mark.parametrize("loss", ["pages", "object"])
def test_the_doctor_finds_it_and_salvage_gives_it_up(tmp_path: Path, loss: str) -> None:
    process = StandaloneProcess(tmp_path, environment=KEEP_EVERYTHING)
    hurt, last, whole = with_damage(process, loss)
    options = ["--copies", "--data", str(process.data_dir)]
    report = json.loads(magnetar("doctor", "storage", "check", "-o", "json", *options, code=7))
    (lost,) = report["lost"]
    assert (lost["ledger"], lost["first"], lost["last"], lost["given_up"]) == (hurt, 0, last, False)
    assert f"{hurt:019d}" in lost["file"]
    assert report["objects"] == 2
    assert f"gave up entries 0 to {last} of ledger {hurt}" in magnetar(
        "doctor", "storage", "salvage", "--apply", *options
    )
    with process:
        history = HistoryTopic(process)
        assert history.read()[0][:2] == (whole, 0)
