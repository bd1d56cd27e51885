"""Streams that start at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from magnetar.spark import worker_settings
from support.spark_topics import connection, fill, new_topic, numbered, reading
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]


def test_queries_add_no_name_to_the_environment_of_workers(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    # Two queries that both add one can fail: see worker_settings.
    before = set(worker_settings.environment(spark).keySet())
    topic = new_topic(standalone)
    fill(standalone, topic, numbered(20))
    assert reading(spark, standalone, topic).load().count() == 20
    streams = [
        spark.readStream.format("magnetar")
        .options(**connection(standalone, topic), startingOffsets="earliest")
        .load()
        .writeStream.format("memory")
        .queryName(f"together_{number}")
        .option("checkpointLocation", str(tmp_path / str(number)))
        .trigger(availableNow=True)
        .start()
        for number in range(2)
    ]
    for number, stream in enumerate(streams):
        stream.awaitTermination()
        assert spark.table(f"together_{number}").count() == 20
    assert set(worker_settings.environment(spark).keySet()) == before
