"""What Spark does around the sink, in one small process that is quickly started and killed.

    python sink_job.py '{"state": folder, "rows": 1000, ...}'

Like a streaming query it notes what a batch holds before it runs it, and that it is done after: a batch that
was noted is run again with the same rows by the next start, which cuts them into other tasks. Prints `ready`
when it begins, and ends when all rows are written.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from magnetar.base.errors import ClientError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.sink_topics import staging_topic
from magnetar.spark.targets import target_partitions
from magnetar.spark.write.commit_log import StagedTask
from magnetar.spark.write.encode import RowEncoder
from magnetar.spark.write.sink import Batch, Sink
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.staged import StagedEntry, blocks
from magnetar.spark.write.staging import StagingWriter

SINK_ID = "query"
KEYS = 10
ROWS_PER_BATCH_MAX = 60
TASKS_MAX = 4
TASK_RETRIES = 3
RETRY_PAUSE_S = 0.5


def value_of(number: int) -> str:
    """The row with this number; its last character is its key."""
    return f"{number:07d}-{number * 7 % KEYS}"


def note(path: Path, text: str) -> None:
    """Replaces a file at once, as Spark does with the files of a checkpoint."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


class Query:
    """One start of the query."""

    def __init__(self, client: Client, options: WriteOptions, state: Path, rows: int) -> None:
        self._client = client
        self._options = options
        self._state = state
        self._rows = rows
        self._target = TopicName.parse(options.topic)
        self._run_id = str(uuid4())
        # Not seeded: a batch that is run again must not be cut as it was.
        self._random = random.Random()

    def run(self) -> None:
        """Batch by batch until all rows are written."""
        while (end := self._newest("done")[1]) < self._rows:
            batch_id = self._newest("done")[0] + 1
            planned = self._state / f"planned-{batch_id}"
            if not planned.exists():
                note(planned, str(min(end + self._random.randint(1, ROWS_PER_BATCH_MAX), self._rows)))
            stop = int(planned.read_text())
            self._write(batch_id, range(end, stop))
            note(self._state / f"done-{batch_id}", str(stop))

    def _newest(self, kind: str) -> tuple[int, int]:
        numbers = [int(path.name.split("-")[1]) for path in self._state.glob(f"{kind}-*") if not path.suffix]
        newest = max(numbers, default=-1)
        return newest, int((self._state / f"{kind}-{newest}").read_text()) if numbers else 0

    def _write(self, batch_id: int, rows: range) -> None:
        partitions = target_partitions(self._client, self._target)
        tasks = self._random.randint(1, TASKS_MAX)
        parts = [
            self._task(
                [value_of(row) for row in rows if int(value_of(row)[-1]) % tasks == task], len(partitions)
            )
            for task in range(tasks)
        ]
        names = [str(topic) for topic in partitions.values()]
        made = [part for part in parts if part]
        sink = Sink(self._client, self._options, SINK_ID)
        sink.commit(Batch(batch_id, made, len(rows), names, self._run_id))

    def _task(self, values: list[str], partitions: int) -> bytes | StagedTask:
        """A task that fails, as its broker is away, is run again; Spark does so three times."""
        for _ in range(TASK_RETRIES):
            try:
                return self._attempt(values, partitions)
            except ClientError:
                time.sleep(RETRY_PAUSE_S)
        return self._attempt(values, partitions)

    def _attempt(self, values: list[str], partitions: int) -> bytes | StagedTask:
        encoder = RowEncoder(
            partitions,
            batching="partition",
            rows_max=self._random.randint(1, 9),
            bytes_max=10_000,
            compression=0,
        )
        columns = {"value": values, "key": [value[-1] for value in values]}
        batch = pa.record_batch({name: pa.array(each, pa.string()) for name, each in columns.items()})
        entries = [*encoder.encode(batch), *encoder.finish()]
        if not entries or self._random.random() < 0.5:
            return b"".join(blocks(entries))
        if self._random.random() < 0.3:
            self._stage(entries)  # An attempt whose message the driver never gets.
        return self._stage(entries)

    def _stage(self, entries: list[StagedEntry]) -> StagedTask:
        writer = StagingWriter(self._client, staging_topic(self._target, SINK_ID))
        for entry in entries:
            writer.write(b"".join(blocks([entry])))
        return writer.finish()


def main(given: dict[str, str]) -> None:
    """Runs until all is written, or until it is killed."""
    options = WriteOptions.parse(
        {"service.url": given["service_url"], "admin.url": given["admin_url"], "topic": given["topic"]}
    )
    with Client(given["service_url"], admin_url=given["admin_url"]) as client:
        print("ready", flush=True)
        Query(client, options, Path(given["state"]), int(given["rows"])).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
