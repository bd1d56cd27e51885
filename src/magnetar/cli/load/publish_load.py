"""Publishes at a rate, to all partitions of a topic in turn.

Message i is due at `i / rate` seconds, and its latency counts from then, whatever happens before. So a slow
answer also counts for all messages that were due meanwhile (which avoids "coordinated omission").
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from magnetar.cli.load.latencies import Latencies
from magnetar.client.producer import Producer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

if TYPE_CHECKING:
    from magnetar.base.names import TopicName
    from magnetar.client.client import Client

SECOND_NS: Final = 1_000_000_000
_WAIT_S: Final = 0.1
_UNANSWERED_MAX: Final = 1_000
"""Most entries of a partition without a receipt. Publishing without a rate reaches it."""


class _Lane:
    """One partition."""

    def __init__(self, producer: Producer, payload: bytes, batch: int) -> None:
        self.producer = producer
        self._payload = payload
        self._batch = batch
        self._next_id = producer.last_sequence_id + 1
        self._due: deque[int] = deque()
        """Due times of the entries without a receipt, in nanoseconds."""

    @property
    def is_full(self) -> bool:
        return len(self._due) >= _UNANSWERED_MAX

    @property
    def under_way(self) -> int:
        return len(self._due)

    def send(self, due_ns: int) -> None:
        metadata = pb.MessageMetadata(
            producer_name=self.producer.name,
            sequence_id=self._next_id,
            publish_time=time.time_ns() // 1_000_000,
        )
        if self._batch == 1:
            entry = build_entry(metadata, self._payload)
        else:
            metadata.num_messages_in_batch = self._batch
            single = pb.SingleMessageMetadata(payload_size=len(self._payload))
            entry = build_entry(metadata, build_batch([(single, self._payload)] * self._batch))
        self.producer.send(self._next_id, entry, self._batch)
        self._next_id += self._batch
        self._due.append(due_ns)

    def take(self, latencies: Latencies | None) -> int:
        """Takes the receipts that have arrived; returns the number of their messages."""
        count = self.producer.advance()
        if count:
            now_ns = time.perf_counter_ns()
            for _ in range(count):
                due_ns = self._due.popleft()
                if latencies is not None:
                    latencies.add(now_ns - due_ns, self._batch)
        return count * self._batch


class PublishLoad:
    """The producers of one run."""

    def __init__(self, client: Client, topics: list[TopicName], size_bytes: int, batch: int) -> None:
        """Opens a producer for each topic. Raises RefusedError, UnreachableError."""
        self._batch = batch
        self._lanes: list[_Lane] = []
        self._turn = 0
        payload = os.urandom(size_bytes)
        try:
            for topic in topics:
                self._lanes.append(_Lane(Producer(client, topic), payload, batch))
        except BaseException:
            self.close()
            raise
        self.acknowledged = 0
        """Number of durable messages."""
        self.latencies: Latencies | None = None
        """Collects latencies; None before the measurement."""

    def run(self, rate_per_s: int, seconds: float) -> float:
        """Publishes for `seconds`; `rate_per_s` 0: as fast as possible. Returns the seconds that it took.

        Returns when all messages are acknowledged. Raises SendFailedError, UnreachableError.
        """
        start_ns = time.perf_counter_ns()
        end_ns = start_ns + round(seconds * SECOND_NS)
        step_ns = self._batch * SECOND_NS / rate_per_s if rate_per_s else 0.0
        sent = 0
        while (now_ns := time.perf_counter_ns()) < end_ns:
            while not self._lanes[self._turn].is_full:
                due_ns = start_ns + round(sent * step_ns) if rate_per_s else now_ns
                if due_ns > now_ns:
                    break
                self._lanes[self._turn].send(due_ns)
                self._turn = (self._turn + 1) % len(self._lanes)
                sent += 1
                if not rate_per_s and sent % _UNANSWERED_MAX == 0:
                    break
            next_ns = start_ns + round(sent * step_ns) if rate_per_s else now_ns
            if self._lanes[self._turn].is_full:
                next_ns = end_ns
            self._take((next_ns - time.perf_counter_ns()) / SECOND_NS)
        while any(lane.under_way for lane in self._lanes):
            self._take(_WAIT_S)
        return (time.perf_counter_ns() - start_ns) / SECOND_NS

    def _take(self, wait_s: float) -> None:
        """Sends collected entries, waits up to `wait_s` for an answer, and takes the receipts."""
        for lane in self._lanes:
            self.acknowledged += lane.take(self.latencies)
        if wait_s > 0:
            ready = [lane.producer for lane in self._lanes if lane.under_way]
            if ready:
                select.select(ready, (), (), min(wait_s, _WAIT_S))
                for lane in self._lanes:
                    self.acknowledged += lane.take(self.latencies)
            else:
                time.sleep(min(wait_s, _WAIT_S))

    def close(self) -> None:
        """Closes the producers."""
        for lane in self._lanes:
            lane.producer.close()
