"""Tiered storage with the official Python client: clients cannot tell where a message lies, come what may."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pulsar
import pytest

from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic, appears, objects_of
from support.official import connect
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]

pytest.importorskip("pyarrow")


@pytest.fixture
def history(tmp_path: Path) -> HistoryTopic:
    process = StandaloneProcess(tmp_path / "standalone", environment=KEEP_EVERYTHING)
    return HistoryTopic(process)


def content(history: HistoryTopic, what: str) -> bytes:
    """A message as the admin API gives it."""
    with urllib.request.urlopen(f"{history.process.http_url}/admin/v2/{history.path}/{what}") as answer:
        data: bytes = answer.read()
    return data


def test_history_reads_as_before(history: HistoryTopic) -> None:
    with history.process:
        for _ in range(3):
            history.fill_ledger(400)
        before = history.read()
        assert len(before) == 1200
        history.offload()
        history.delete_local()
        assert history.read() == before
        middle = before[700]
        where = pulsar.MessageId(-1, middle.ledger_id, middle.entry_id, middle.batch_index)
        assert history.read(where) == before[701:]

        stats = history.process.admin("GET", f"{history.path}/stats")
        assert stats["offloadedStorageSize"] == stats["storageSize"] > 0
        found = history.process.admin("GET", f"{history.path}/messageid/{middle.publish_ms}")
        assert (found["ledgerId"], found["entryId"]) <= (middle.ledger_id, middle.entry_id)
        single = next(message for message in before[500:] if message.batch_index < 0)
        assert content(history, f"ledger/{single.ledger_id}/entry/{single.entry_id}") == single.data
        assert content(history, "examinemessage?initialPosition=latest&messagePosition=1") == before[-1].data
        client = connect(history.process)
        consumer = client.subscribe(
            history.topic, "s", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=50
        )
        assert [consumer.receive(int(DEADLINE_S * 1000)).data() for _ in range(5)] == [
            message.data for message in before[:5]
        ]
        stats = history.process.admin("GET", f"{history.path}/stats")
        assert stats["subscriptions"]["s"]["msgBacklog"] == sum(
            ledger["entries"] for ledger in history.ledgers()
        )
        consumer.seek(before[600].publish_ms)
        first = consumer.receive(int(DEADLINE_S * 1000))
        assert first.publish_timestamp() >= before[600].publish_ms
        client.close()

        history.process.stop()
        history.process.start()
        assert history.read() == before
        history.process.admin("DELETE", f"{history.path}?force=true")
        assert objects_of(history.process.data_dir / "offloaded") == set()


def test_history_survives_kills(history: HistoryTopic) -> None:
    """kill -9 while a ledger is converted, while it is compared, before and after it is the only copy."""
    process, store = history.process, history.process.data_dir / "offloaded"
    # Slow enough that a kill hits the step that was waited for.
    process.environment["MAGNETAR_OFFLOAD_BYTES_PER_S_MAX"] = "200000"
    try:
        process.start()
        history.fill_ledger()
        before = history.read()
        for step in ("converting", "comparing", "complete", "only copy"):
            if step == "converting":
                history.request()
                appears(process.data_dir / "offload", "*.parquet")
            elif step == "comparing":
                history.request()
                appears(store, "*.parquet")
            elif step == "complete":
                history.offload()
            else:
                history.delete_local()
            process.kill()
            process.start()
            assert history.read() == before, step
        assert [ledger["offloadedTo"]["onlyCopy"] for ledger in history.ledgers()] == [True]
        assert objects_of(store) == {ledger["offloadedTo"]["attempt"] for ledger in history.ledgers()}
        assert list((process.data_dir / "offload").iterdir()) == []
    finally:
        process.kill()


def test_thresholds_offload_by_themselves_and_retention_deletes_objects(history: HistoryTopic) -> None:
    with history.process as process:
        process.admin("PUT", "namespaces/public/default/offloadThreshold", 0)
        history.fill_ledger(200)
        history.delete_local()
        attempts = objects_of(process.data_dir / "offloaded")
        assert len(attempts) == 1
        limits = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        process.admin("POST", "namespaces/public/default/retention", limits)
        wait_until(lambda: not objects_of(process.data_dir / "offloaded"), DEADLINE_S, "objects deleted")


def test_a_missing_object_is_named(history: HistoryTopic) -> None:
    with history.process as process:
        history.fill_ledger(200)
        history.offload()
        history.delete_local()
        path = next((process.data_dir / "offloaded").rglob("*.parquet"))
        path.rename(path.with_suffix(".away"))
        client = connect(process)
        consumer = client.subscribe(history.topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        wait_until(lambda: path.name in process.log_text(), DEADLINE_S, "the object named")
        stats = process.admin("GET", f"{history.path}/stats")
        assert path.name in stats["subscriptions"]["s"]["whyIdle"]
        path.with_suffix(".away").rename(path)
        # Nothing has to be done: what is back is read.
        assert consumer.receive(int(DEADLINE_S * 1000)).data() == b"0 " * 40
        client.close()
