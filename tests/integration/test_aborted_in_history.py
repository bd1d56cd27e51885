"""Ledgers with messages of aborted transactions in history: whatever reads it gets what is committed."""

from __future__ import annotations

import base64
from pathlib import Path

import pulsar
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")


from support.files import files_in
from support.history_topics import KEEP_EVERYTHING, TOPIC, HistoryTopic
from support.lake_history import lake, rows_of, wait_for_files
from support.official import QUIET
from support.standalone import StandaloneProcess
from support.transactional_history import write_ledgers

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]


@pytest.fixture
def history(tmp_path: Path) -> HistoryTopic:
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": "", "MAGNETAR_TRANSACTIONS": "true"}
    return HistoryTopic(StandaloneProcess(tmp_path / "standalone", environment=environment))


def test_history_has_exactly_what_is_committed(history: HistoryTopic) -> None:
    store = history.process.data_dir / "offloaded"
    with history.process as process:
        client = history.client()
        consumer = client.subscribe(TOPIC, "late", initial_position=pulsar.InitialPosition.Earliest)
        client.close()
        kept = write_ledgers(history)
        read = history.read()
        assert [each.data for each in read] == kept
        history.offload()
        history.delete_local()
        assert [ledger["entries"] for ledger in history.ledgers()] == [20, 8, 16]
        assert history.read() == read
        for at in (0, 7, len(read) - 2):
            place = pulsar.MessageId(-1, read[at].ledger_id, read[at].entry_id, -1)
            assert history.read(place) == read[at + 1 :]

        # Files and tables.
        # The second ledger has a file without rows, which plans of scans leave out.
        table = wait_for_files(history, 2)
        assert rows_of(table) == read
        assert table.scan().to_arrow().num_rows == len(read), "no rows that readers would have to leave out"
        rows = [row for path in files_in(store, "*.parquet") for row in pq.read_table(path).to_pylist()]
        assert len(rows) == len(read)
        assert not [row for row in rows if b"ABORTED" in (row["payload"] or row["raw_entry"])]

        # Look-ups by key, before and after small files have become one.
        assert by_key(history, "key 1") == [each.entry_id for each in reversed(read) if each.key == "key 1"]
        assert lake(process, "maintain", "history", "--yes")[1]["merge_made"] == 1
        assert rows_of(wait_for_files(history, 1)) == history.read() == read
        assert by_key(history, "key 1") == [each.entry_id for each in reversed(read) if each.key == "key 1"]
        assert lake(process, "verify", "history")[1]["problems"] == []

        # A subscription from before goes over the gaps, and its backlog ends.
        process.kill()
        process.start()
        assert history.read() == read
        client = pulsar.Client(process.broker_url, logger=QUIET)
        consumer = client.subscribe(TOPIC, "late")
        for body in kept:
            message = consumer.receive(60_000)
            assert message.data() == body
            consumer.acknowledge(message)
        consumer.close()
        client.close()
        stats = process.admin("GET", f"{history.path}/stats")
        assert stats["subscriptions"]["late"]["msgBacklog"] == 0
        assert stats["offloadedStorageSize"] > 0


def by_key(history: HistoryTopic, key: str) -> list[int]:
    text = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    found = history.process.admin("GET", f"{history.path}/messagesByKey?key={text}&limit=1000")
    return [each["entryId"] for each in found["messages"]]
