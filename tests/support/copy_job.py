"""A Spark driver that copies a topic, to be killed: `python copy_job.py '{"source": ..., ...}'`.

Ends when it has copied what there is, or, with `forever`, when it is killed.
"""

from __future__ import annotations

import json
import os
import sys

from magnetar.spark import session

SETTINGS = {
    # The job must survive killed executors.
    "spark.task.maxFailures": "50",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.maxNumFailures": "1000",
    "spark.speculation": "true",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    # It must also survive a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.network.timeout": "300s",
    "spark.log.level": "ERROR",
}


def main(given: dict[str, str]) -> None:
    """Starts the query and waits for it."""
    spark = session("copy", master=given["master"], config=SETTINGS)
    print(spark.sparkContext.applicationId)
    options = {"service.url": given["service_url"], "admin.url": given["admin_url"]}
    rows = spark.readStream.format("magnetar").options(**options, topic=given["source"])
    rows = rows.option("startingOffsets", "earliest").option("maxRowsPerTrigger", given["rows"])
    # Another number of tasks with each start: a batch that is run again is cut in another way.
    copied = rows.load().select("value", "key").repartition(int(given["tasks"]), "key")
    writer = copied.writeStream.format("magnetar").options(**options, topic=given["target"])
    writer = writer.option("checkpointLocation", given["checkpoint"]).option("maxRowsPerEntry", "5")
    writer = writer.option("inlineBytesMax", given["inline"])
    if given["forever"]:
        query = writer.trigger(processingTime="100 milliseconds").start()
    else:
        query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
