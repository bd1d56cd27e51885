"""`magnetar bench`: measures the rates and latencies of publishing and reading."""

from __future__ import annotations

import click

from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller, calls


@click.group()
def bench() -> None:
    """Load on a topic of a running broker, from one process, and its measurements (docs/cli.md)."""


@bench.command(epilog="Example: magnetar bench publish load-test --rate 10000 --size 100 --seconds 30")
@click.argument("topic")
@click.option(
    "--rate",
    type=click.IntRange(min=0),
    default=1_000,
    help="Messages per second; 0: as fast as possible.  [1000]",
)
@click.option("--size", type=click.IntRange(min=0), default=1_024, help="Size of a message in bytes.  [1024]")
@click.option("--batch", type=click.IntRange(1, 10_000), default=1, help="Messages in an entry.  [1]")
@click.option("--seconds", type=click.FloatRange(min=0.01), default=10.0, help="Seconds to measure.  [10]")
@click.option(
    "--warm-up", type=click.FloatRange(min=0), default=1.0, help="Seconds before the measurement.  [1]"
)
@calls
def publish(
    caller: Caller, topic: str, rate: int, size: int, batch: int, seconds: float, warm_up: float
) -> None:
    """Publish to TOPIC and wait for receipts: rate, and latency from when each message was due.

    The messages stay in the topic as others do. When this process or the broker cannot keep the rate, the
    latencies grow.
    """
    from magnetar.cli.load.latencies import Latencies
    from magnetar.cli.load.publish_load import PublishLoad
    from magnetar.cli.messages.topic_reading import topics_of

    with caller.client() as client:
        load = PublishLoad(client, topics_of(client, TopicName.parse(topic)), size, batch)
        try:
            if warm_up:
                load.run(rate, warm_up)
            load.acknowledged, load.latencies = 0, Latencies()
            took_s = load.run(rate, seconds)
        finally:
            load.close()
    caller.show(
        {
            "messages": load.acknowledged,
            "messages/s": round(load.acknowledged / took_s),
            "MB/s": round(load.acknowledged * size / took_s / 1e6, 1),
            **load.latencies.milliseconds(),
        }
    )


@bench.command(epilog="Example: magnetar bench consume load-test --from earliest --seconds 30")
@click.argument("topic")
@click.option(
    "--from",
    "begin",
    type=click.Choice(["latest", "earliest"]),
    default="latest",
    help="Where to begin: the newest or the oldest message.  [latest]",
)
@click.option("--seconds", type=click.FloatRange(min=0.01), default=10.0, help="Seconds to measure.  [10]")
@calls
def consume(caller: Caller, topic: str, begin: str, seconds: float) -> None:
    """Read TOPIC: rate, and time from when the broker took each message until it was here.

    Nothing is acknowledged. The times are differences of two machines' clocks, whole milliseconds.
    """
    from magnetar.cli.load.latencies import Latencies
    from magnetar.cli.load.read_load import Reading
    from magnetar.cli.messages.topic_reading import topics_of

    with caller.client() as client:
        reading = Reading(client, topics_of(client, TopicName.parse(topic)), earliest=begin == "earliest")
        reading.ages = Latencies()
        try:
            took_s = reading.run(seconds)
        finally:
            reading.close()
    caller.show(
        {
            "messages": reading.messages,
            "messages/s": round(reading.messages / took_s),
            "MB/s": round(reading.size_bytes / took_s / 1e6, 1),
            **reading.ages.milliseconds(),
        }
    )
