"""Spark's Python daemon with the modules of the data source loaded before it forks its workers.

Spark forks a worker for every task that runs at the same time and for each kind of call (planning, reading,
writing, committing). Each of them would load Arrow, protobuf and the data source anew, 0.7 s of CPU a time;
so they inherit them. Run by Spark (`spark.python.daemon.module`), never by hand.
"""

from __future__ import annotations

import os

# Before numpy loads its linear algebra: a thread pool that exists at the fork is of no use to the child.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import magnetar.spark.read.range_reading
import magnetar.spark.read.stream
import magnetar.spark.write.topic_writers  # noqa: F401

if __name__ == "__main__":
    manager()
