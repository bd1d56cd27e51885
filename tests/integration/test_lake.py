"""Iceberg tables over offloaded history: what readers of other projects see is what consumers see."""

from __future__ import annotations

import base64
import os
import signal
import urllib.error
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic, objects_of
from support.lake_history import lake, rows_of, table_of, wait_for_files
from support.standalone import StandaloneProcess, wait_until

pytest.importorskip("pyiceberg")


pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]


@pytest.fixture
def history(tmp_path: Path) -> HistoryTopic:
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": ""}
    return HistoryTopic(StandaloneProcess(tmp_path / "standalone", environment=environment))


def test_table_has_what_consumers_read(history: HistoryTopic) -> None:
    with history.process:
        for _ in range(2):
            history.fill_ledger(100)
        read = history.read()
        history.offload()
        table = wait_for_files(history, 2)
        assert rows_of(table) == read


def test_retention_deletes_in_both_worlds(history: HistoryTopic) -> None:
    store = history.process.data_dir / "offloaded"
    with history.process as process:
        for _ in range(3):
            history.fill_ledger(40)
        read = history.read()
        first, last = read[0].ledger_id, read[-1].ledger_id
        client = history.client()
        consumer = client.subscribe(history.topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        history.offload()
        history.delete_local()
        wait_for_files(history, 3)
        assert lake(process, "verify", "history")[1]["problems"] == []

        limits = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        process.admin("POST", "namespaces/public/default/retention", limits)
        number = sum(seen.ledger_id == first for seen in read)
        for _ in range(number):
            message = consumer.receive(int(DEADLINE_S * 1000))
        consumer.acknowledge_cumulative(message)
        wait_until(lambda: len(objects_of(store)) == 2, DEADLINE_S, "the first ledger's object deleted")
        table = table_of(history)
        assert table is not None
        # Gone from the table before it was gone from the store; no snapshot names it.
        for snapshot in table.metadata.snapshots:
            assert set(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["ledger_id"].to_pylist()) == {
                seen.ledger_id for seen in read if seen.ledger_id != first
            }
        assert rows_of(table) == read[number:]
        code, found = lake(process, "verify", "--all")
        assert (code, found[0]["files"], found[0]["problems"]) == (0, 2, [])

        # An object that another program deleted is found, and ends the command with 7.
        path = next(store.rglob(f"*{last:019d}-*.parquet"))
        path.rename(path.with_suffix(".away"))
        code, found = lake(process, "verify", "history")
        assert (code, [each["kind"] for each in found["problems"]]) == (7, ["missing"])
        path.with_suffix(".away").rename(path)

        client.close()
        process.admin("DELETE", f"{history.path}?force=true")
        assert objects_of(store) == set()
        wait_until(lambda: table_of(history) is None, DEADLINE_S, "the table dropped")
        wait_until(lambda: not metadata_of(store), DEADLINE_S, "its metadata deleted")


def test_small_files_are_merged(history: HistoryTopic) -> None:
    """Consumers, readers of the table and look-ups by key see the same before, meanwhile and after."""
    store = history.process.data_dir / "offloaded"
    with history.process as process:
        for _ in range(5):
            history.fill_ledger(40)
        read = history.read()
        history.offload()
        process.admin("PUT", "namespaces/public/default/offloadDeletionLagMs", 0)
        history.delete_local()
        process.admin("PUT", "namespaces/public/default/offloadDeletionLagMs", 3_600_000)
        before = wait_for_files(history, 5).current_snapshot()
        assert before is not None
        found = lake(process, "maintain", "history", "--dry-run")[1]
        assert (found["merge_files"], found["merge_made"], found["files"]) == (5, 1, 5)
        found = lake(process, "maintain", "history", "--yes")[1]
        assert (found["merge_files"], found["merge_made"], found["files"]) == (5, 1, 1)

        table = wait_for_files(history, 1)
        assert rows_of(table) == history.read() == read
        now = table.current_snapshot()
        assert now is not None
        assert now.summary is not None
        assert now.summary.operation.value == "replace"
        # A reader of the snapshot before goes on: its files stay for the lag.
        assert len(objects_of(store)) == 6
        assert table.scan(snapshot_id=before.snapshot_id).to_arrow().num_rows == len(read)
        assert lake(process, "verify", "history")[1]["problems"] == []
        assert lake(process, "maintain", "history", "--yes")[1]["merge_files"] == 0
        by_key = [each for each in read if each.key == "key 3"]
        found_by_key = process.admin("GET", f"{history.path}/messagesByKey?key={KEY_3}&limit=1000")
        assert [each["entryId"] for each in found_by_key["messages"]] == [
            each.entry_id for each in reversed(by_key)
        ]
        assert found_by_key["files"] == 1

        process.kill()
        process.start()
        assert history.read() == read
        history.fill_ledger(40)
        history.offload()
        wait_for_files(history, 2)
        assert rows_of(wait_for_files(history, 2)) == history.read()

        # An object that is gone is named, with its topic.
        path = next(store.rglob("*-to-*.parquet"))
        path.rename(path.with_suffix(".away"))
        process.kill()
        process.start()
        with pytest.raises(urllib.error.HTTPError) as raised:
            process.admin("GET", f"{history.path}/messagesByKey?key={KEY_3}&limit=1000")
        reason = raised.value.read().decode()
        assert path.name in reason
        assert "public/default/persistent/history" in reason
        assert lake(process, "verify", "history")[1]["problems"][0]["kind"] == "missing"
        path.with_suffix(".away").rename(path)


KEY_3 = base64.urlsafe_b64encode(b"key 3").decode().rstrip("=")


def metadata_of(store: Path) -> list[str]:
    """Files of tables; folders may go meanwhile."""
    return [name for _, _, names in os.walk(store / "magnetar-lake") for name in names]


def test_tables_follow_after_a_start(history: HistoryTopic) -> None:
    """As after a crash between the end of a copy and the commit: the lists say what tables are to have."""
    history.process.environment["MAGNETAR_LAKE_CATALOG"] = "none"
    with history.process as process:
        history.fill_ledger(40)
        history.offload()
        with pytest.raises(urllib.error.HTTPError, match="501"):
            process.admin("GET", f"{history.path}/lake")
        process.kill()
        process.environment["MAGNETAR_LAKE_CATALOG"] = ""
        process.start()
        table = wait_for_files(history, 1)
        assert rows_of(table) == history.read()
        # The worker is not a part of the broker: it may go at any time.
        worker = next(
            int(pid.name)
            for pid in Path("/proc").iterdir()
            if pid.name.isdigit() and _is_worker_of(pid, process.pid)
        )
        os.kill(worker, signal.SIGKILL)
        history.fill_ledger(40)
        history.offload()
        wait_for_files(history, 2)
        status = lake(process, "status", "history")[1]
        assert (status["upToDate"], status["files"], status["rows"]) == (True, 2, 80)
        assert lake(process, "status")[1]["tables"][0]["table"] == "public__default.history"
        done = lake(process, "maintain", "history", "--keep-days", "0", "--keep-snapshots", "1", "--yes")[1]
        assert (done["expired_snapshots"], done["snapshots"], done["small_files"]) == (1, 1, 2)


def _is_worker_of(folder: Path, parent: int) -> bool:
    try:
        line = (folder / "cmdline").read_bytes()
        status = (folder / "status").read_text()
    except OSError:
        return False
    return b"magnetar.lake.lake_worker" in line and f"\nPPid:\t{parent}\n" in status


class First(Record):
    name = String()
    level = Integer()


class Second(Record):
    name = String()
    level = Integer()
    unit = String(required_default=True)


def test_partitions_and_schema_versions_are_one_table(history: HistoryTopic) -> None:
    topic, name = "persistent://public/default/sensors.v1=x", "sensors_x002e_v1_x003d_x"
    with history.process as process:
        process.admin("PUT", f"{topic.replace('://', '/')}/partitions", 2)
        partitions = [HistoryTopic(process, f"{topic}-partition-{number}") for number in range(2)]
        client = history.client()
        for kind, made in (
            (First, lambda number: First(name=f"s{number}", level=number)),
            (Second, lambda number: Second(name=f"s{number}", level=number, unit="m")),
        ):
            for partition in partitions:
                producer = client.create_producer(partition.topic, schema=AvroSchema(kind))
                for number in range(5):
                    producer.send(made(number), partition_key="k")
                producer.close()
                process.admin("PUT", f"{partition.path}/unload")
        client.close()
        for partition in partitions:
            partition.offload()
        table = wait_for_files(history, 4, name)
        rows = table.scan().to_arrow().sort_by([("partition", "ascending"), ("ledger_id", "ascending")])
        expected = [{"name": f"s{n}", "level": n, "unit": unit} for unit in (None, "m") for n in range(5)]
        found: dict[int, list[dict[str, Any]]] = {number: [] for number in range(2)}
        for row in rows.to_pylist():
            found[row["partition"]].append(
                {field: row["value"][field] for field in ("name", "level", "unit")}
            )
        for number in range(2):
            assert sorted(found[number], key=str) == sorted(expected, key=str)
        status = lake(process, "status", "sensors.v1=x")[1]
        assert (status["table"], status["upToDate"], status["rows"]) == (f"public__default.{name}", True, 20)
        process.admin("DELETE", f"{topic.replace('://', '/')}/partitions?force=true")
        wait_until(lambda: table_of(history, name) is None, DEADLINE_S, "the table dropped")
