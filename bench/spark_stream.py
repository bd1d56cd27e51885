"""How long does a row take through a streaming query, from being due to being read behind the sink?

    python -m bench.spark_stream [--rate N] [--seconds S] [--service-url URL --http-url URL] [--json FILE]

A generator publishes rows of 100 B at a fixed rate, in entries of what is due each 10 ms. A query with a
trigger of 1 s copies them to another topic exactly once, and a reader takes them from there. A row's time
counts from when it was due, whatever happened meanwhile; the first seconds warm up and do not count.
"""

from __future__ import annotations

import threading
import time
from uuid import uuid4

import numpy as np

from bench.histogram import Latencies, due_count, intended_ns
from bench.spark_program import Amount, Given, main
from magnetar.arrow.decode import Decoder
from magnetar.base.ids import EARLIEST
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.reader import EntryReader
from magnetar.spark import session
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

TICK_S = 0.01
WARM_S = 20.0
PADDING = b"x" * 92
"""Behind the eight bytes of the time at which the row was due."""
DRAIN_S = 30.0


def publish(client: Client, topic: TopicName, rate: int, start_ns: int, ended: threading.Event) -> None:
    """Publishes at the rate until told to end."""
    single = pb.SingleMessageMetadata()
    sent = 0
    with Producer(client, topic) as producer:
        while not ended.wait(TICK_S):
            due = due_count(start_ns, rate, time.time_ns())
            if due <= sent:
                continue
            times = intended_ns(start_ns, rate, sent, due - sent)
            payload = build_batch([(single, int(at).to_bytes(8, "big") + PADDING) for at in times])
            metadata = pb.MessageMetadata(
                producer_name=producer.name,
                sequence_id=sent,
                publish_time=time.time_ns() // 1_000_000,
                num_messages_in_batch=due - sent,
            )
            producer.send(sent, build_entry(metadata, payload), due - sent)
            producer.flush()
            sent = due


def measure(client: Client, topic: TopicName, from_ns: int, until_ns: int) -> Latencies:
    """Times of the rows that were due between the two, as they arrive. Raises SystemExit when some do not."""
    latencies = Latencies()
    decoder = Decoder(topic, ("value",))
    newest_ns = 0
    deadline_ns = until_ns + int(DRAIN_S * 1e9)
    with EntryReader(client, topic, EARLIEST) as reader:
        while newest_ns < until_ns:
            if time.time_ns() > deadline_ns:
                raise SystemExit(f"rows are still missing {DRAIN_S:.0f} s after they were due")
            columns = reader.read(0.1)
            if not len(columns):
                reader.ping()
                continue
            now_ns = time.time_ns()
            for rows in decoder.decode(columns):
                heads = b"".join(value[:8] for value in rows.column(0).to_pylist())
                times = np.frombuffer(heads, ">i8").astype(np.int64)
                newest_ns = max(newest_ns, int(times.max()))
                chosen = times[(times >= from_ns) & (times < until_ns)]
                latencies.record(np.maximum(now_ns - chosen, 0))
    return latencies


def run(asked: Given) -> dict[str, float]:
    """Percentiles in milliseconds, and rows."""
    service_url, http_url, rate, seconds, folder, _ = asked
    name = f"bench-{uuid4().hex[:8]}"
    source, target = TopicName.parse(f"{name}-in"), TopicName.parse(f"{name}-out")
    spark = session("bench", master="local[2]", config={"spark.log.level": "OFF"})
    given = {"service.url": service_url, "admin.url": http_url}
    ended = threading.Event()
    with Client(service_url, admin_url=http_url) as client, Client(service_url) as other:
        for topic in (source, target):
            Producer(client, topic).close()
        start_ns = time.time_ns()
        generator = threading.Thread(target=publish, args=(other, source, rate, start_ns, ended))
        generator.start()
        rows = spark.readStream.format("magnetar").options(**given, topic=str(source), columns="value")
        writer = rows.option("startingOffsets", "earliest").load().writeStream.format("magnetar")
        writer = writer.options(**given, topic=str(target), checkpointLocation=str(folder / "checkpoint"))
        query = writer.trigger(processingTime="1 second").start()
        try:
            from_ns = time.time_ns() + int(WARM_S * 1e9)
            latencies = measure(client, target, from_ns, from_ns + int(seconds * 1e9))
        finally:
            ended.set()
            generator.join()
            query.stop()
    return {**latencies.milliseconds(), "rows": float(len(latencies))}


if __name__ == "__main__":
    main(__doc__, Amount("rate", 10_000, "rows a second (%(default)s)"), 40.0, run, form=",.1f")
