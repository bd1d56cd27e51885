"""A job of its own process: reads, streams and writes topics with the session that it is told to start.

    python spark_story.py MASTER BROKER_URL SERVICE_URL TOPIC TARGET FOLDER

MASTER is a master's URL, or `connect` for a Spark Connect session of this machine. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import SparkSession

from magnetar.spark.session import prepare, session
from support.spark_acceptance import accept
from support.standalone import StandaloneProcess


def start(master: str) -> SparkSession:
    """The session."""
    if master == "connect":
        prepare("local[2]")
        os.environ["SPARK_TESTING"] = "1"  # Has Spark choose a free port.
        return SparkSession.builder.remote("local[2]").getOrCreate()
    config = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.sql.shuffle.partitions": "2",
    }
    return session("story", master=master, config=config)


def main() -> None:
    """Reads all, streams all in limited batches, restarts, and copies into TARGET exactly once."""
    master, broker_url, service_url, topic, target, folder = sys.argv[1:]
    spark = start(master)
    where = {"service.url": service_url, "topic": topic, "startingOffsets": "earliest"}
    read = spark.read.format("magnetar").options(**where, minPartitions="4", valueFormat="string").load()
    counted = read.groupBy("partition").count().orderBy("partition").collect()
    counts = (
        spark.read.format("magnetar")
        .options(**where, minPartitions="4")
        .load()
        .selectExpr("count(*)")
        .first()
    )
    stream = spark.readStream.format("magnetar").options(**where, maxRowsPerTrigger="70").load()
    batches = []
    for _ in range(2):  # The second run goes on where the first one ended: there is nothing left.
        query = (
            stream.select("value", "key")
            .writeStream.format("magnetar")
            .options(**{"service.url": service_url, "topic": target})
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        batches.append(len([each for each in query.recentProgress if each.numInputRows]))
    written = spark.read.format("magnetar").options(**{**where, "topic": target}).load()
    values = sorted(bytes(row.value).decode() for row in written.select("value").collect())
    standalone = StandaloneProcess(Path(folder))
    standalone.broker_url, standalone.http_url = broker_url, service_url
    accepted = accept(spark, standalone, Path(folder))
    print(
        json.dumps(
            {
                "accepted": accepted,
                "counted": [(row["partition"], row["count"]) for row in counted],
                "rows": counts[0] if counts else 0,
                "batches": batches,
                "values": values,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
