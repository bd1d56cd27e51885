"""Publishes the script with the official client: as fast as it goes, tick by tick, with producers' retries.

Each feed has two named producers with sequence ids of their own: the main link, batched, and a backup link,
not batched, whose receipts get lost, so that it sends everything twice. The broker must recognise the
second time by producer name and sequence id. The retries go unbatched because the official client gives a
batch the sequence id of its first message only: a retry that is cut into batches differently would not be
recognised by any broker.

Per message the client is given no callback on the main link: a callback costs a switch of the interpreter
lock for each receipt, which divides the rate by four. `flush` waits for all receipts of a tick, retries are
counted by their own receipts, and what the topics hold in the end is counted by the batch: that, not the
receipts, is the proof that nothing was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pulsar

from magnetar.demo.errors import DemoError
from magnetar.demo.events import Feed
from magnetar.demo.scenario import HOUR_MS
from magnetar.demo.script import Script, ScriptStep, closing_event
from magnetar.demo.topics import SCHEMAS, DemoCluster, Encoded


class PublishingFailedError(DemoError):
    """A publish failed or receipts did not arrive in time."""


@dataclass(slots=True)
class ReplayState:
    """Counters of a running replay; only its thread writes, all threads may read."""

    sent: int = 0
    """Messages acknowledged, retries not counted."""
    retried: int = 0
    """Messages sent a second time and answered."""
    refused: int = 0
    """Retries that the broker recognised: answered without being stored."""
    clock_ms: int = 0
    """The replay's clock: arrival time up to which everything is published."""
    busy_s: float = 0.0
    """Seconds spent publishing and waiting for receipts."""

    @property
    def rate(self) -> float:
        """Messages a second while publishing, retries included."""
        return (self.sent + self.retried) / self.busy_s if self.busy_s else 0.0


class Replay:
    """One run through a script. Connects on construction; `close` it in the end."""

    def __init__(self, cluster: DemoCluster, script: Script) -> None:
        self._cluster = cluster
        self._script = script
        self._closings = 0
        self.state = ReplayState(clock_ms=script.first_ms)
        self._client = pulsar.Client(
            cluster.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        self._main = {feed.producer: self._producer(feed, batched=True) for feed in script.feeds}
        self._backup = {feed.producer: self._producer(feed, batched=False) for feed in script.feeds}

    def run(self, stop: threading.Event, *, wait: Callable[[], bool] = lambda: False) -> None:
        """Publish everything; returns early when `stop` is set.

        Before each tick it pauses for as long as `wait()` says so; pauses do not count as publishing. Raises
        `PublishingFailedError`.
        """
        try:
            for tick in self._script.ticks:
                while wait() and not stop.is_set():
                    stop.wait(0.02)
                if stop.is_set():
                    return
                began = time.perf_counter()
                self._publish(tick.steps)
                self._publish_twice([step for step in tick.steps if step.retried])
                self.state.busy_s += time.perf_counter() - began
                self.state.clock_ms = tick.clock_ms
        except pulsar.PulsarException as error:
            if not stop.is_set():
                raise PublishingFailedError(f"publishing failed: {error}") from error

    def publish_closing_events(self) -> None:
        """One event per topic that tells event time to move on; each call moves it an hour further.

        A stream learns the new time from one batch and acts on it in the next, so it takes two calls, the
        second after the stream has taken in the first, to close the last windows.
        """
        closing_ms = self._script.closing_ms + self._closings * HOUR_MS
        self._closings += 1
        last = {feed.topic: feed for feed in self._script.feeds}
        for topic, feed in last.items():
            self._main[feed.producer].send(
                closing_event(topic, closing_ms),
                partition_key="closing",
                sequence_id=len(feed) + self._closings,
                event_timestamp=closing_ms,
            )

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _producer(self, feed: Feed, *, batched: bool) -> pulsar.Producer:
        return self._client.create_producer(
            self._cluster.topic(feed.topic),
            producer_name=feed.producer if batched else f"{feed.producer}-backup",
            schema=Encoded(SCHEMAS[feed.topic]),
            batching_enabled=batched,
            batching_max_messages=1000,
            batching_max_publish_delay_ms=5,
            max_pending_messages=20_000,
            block_if_queue_full=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition,
        )

    def _publish(self, steps: list[ScriptStep]) -> None:
        for step in steps:
            _send(self._main[step.feed.producer], step.feed, step.start, step.stop - step.retried, None)
        for step in steps:
            self._main[step.feed.producer].flush()
        self.state.sent += sum(step.stop - step.retried - step.start for step in steps)

    def _publish_twice(self, steps: list[ScriptStep]) -> None:
        """Send the last messages of each step over the backup link, and then all of them again."""
        receipts = _Receipts()
        for callback in (None, receipts):
            for step in steps:
                _send(
                    self._backup[step.feed.producer], step.feed, step.stop - step.retried, step.stop, callback
                )
            for step in steps:
                self._backup[step.feed.producer].flush()
        expected = sum(step.retried for step in steps)
        receipts.wait(expected, timeout_s=30)
        self.state.sent += expected
        self.state.retried += expected
        self.state.refused += receipts.refused


def _send(producer: pulsar.Producer, feed: Feed, start: int, stop: int, callback: object) -> None:
    send = producer.send_async
    for index in range(start, stop):
        send(
            feed.payloads[index],
            callback,
            partition_key=feed.keys[index],
            # From 1: the client takes 0 for "not given".
            sequence_id=index + 1,
            event_timestamp=feed.event_ms[index],
        )


class _Receipts:
    """Counts receipts on the client's thread; `refused` are those without a position: nothing was stored."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._failed = 0
        self.refused = 0

    def __call__(self, result: object, message_id: pulsar.MessageId) -> None:
        with self._changed:
            self._count += 1
            if result != pulsar.Result.Ok:
                self._failed += 1
            elif message_id.entry_id() < 0:
                self.refused += 1
            self._changed.notify()

    def wait(self, expected: int, timeout_s: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= expected, timeout_s):
                raise PublishingFailedError(
                    f"{expected - self._count} of {expected} receipts missing after {timeout_s:.0f} s"
                )
            if self._failed:
                raise PublishingFailedError(f"{self._failed} of {expected} retries failed")
