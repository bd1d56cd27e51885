"""Small files of history that become one while Spark reads them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from magnetar.spark.source import MagnetarSource
from support.files import files_in
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic
from support.spark_queries import batch_rows, options, rows_of, schema_of
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.one_process("history")]


def test_a_merge_between_planning_and_reading(tmp_path: Path) -> None:
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": ""}
    with StandaloneProcess(tmp_path / "s", environment=environment) as process:
        topic = HistoryTopic(process)
        for _ in range(4):
            topic.fill_ledger(50)
        topic.offload()
        topic.delete_local()
        before = batch_rows(process, topic.topic)
        source = MagnetarSource(options(process, topic.topic))
        reader = source.reader(schema_of(source))
        planned = reader.partitions()

        process.admin("POST", f"{topic.path}/lake/merge")
        wait_until(lambda: merged(topic), DEADLINE_S, "merged")
        names = {ledger["offloadedTo"]["segments"][0]["name"] for ledger in topic.ledgers()}
        assert len(names) == 1
        # The lag is over at once: what was planned is asked of the broker.
        wait_until(lambda: objects(process) == 1, DEADLINE_S, "the small files deleted")
        assert rows_of(pickle.dumps(reader), planned) == before
        assert batch_rows(process, topic.topic) == before
        for pieces in (3, 7):
            assert batch_rows(process, topic.topic, minPartitions=str(pieces)) == before
        wanted = [row for row in before if row["key"] == b"key 3"]
        assert batch_rows(process, topic.topic, keys="key 3") == wanted


def merged(topic: HistoryTopic) -> bool:
    job = topic.process.admin("GET", f"{topic.path}/lake/merge")
    assert job["status"] in ("RUNNING", "SUCCESS"), job
    return bool(job["status"] == "SUCCESS")


def objects(process: StandaloneProcess) -> int:
    return len(files_in(process.data_dir / "offloaded", "*.parquet"))
