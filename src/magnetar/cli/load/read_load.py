"""Reads a topic as fast as possible."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from magnetar.base.ids import EARLIEST, LATEST
from magnetar.cli.load.latencies import Latencies
from magnetar.client.deliveries import UNKNOWN, EntryColumns
from magnetar.client.reader import EntryReader
from magnetar.wire.payload import parse_metadata, split_entry

if TYPE_CHECKING:
    from magnetar.base.names import TopicName
    from magnetar.client.client import Client

_WAIT_S: Final = 0.05


class Reading:
    """Readers of one run, one for each partition."""

    def __init__(self, client: Client, topics: list[TopicName], *, earliest: bool) -> None:
        """Opens the readers. Raises RefusedError, UnreachableError."""
        self.messages = 0
        self.size_bytes = 0
        """Bytes of entries, metadata included."""
        self.ages: Latencies | None = None
        """Times from the broker's receipt of a message to its arrival; None before the measurement."""
        self._readers: list[EntryReader] = []
        self._indexes: dict[int, int] = {}
        try:
            for topic in topics:
                self._readers.append(EntryReader(client, topic, EARLIEST if earliest else LATEST))
        except BaseException:
            self.close()
            raise

    def run(self, seconds: float) -> float:
        """Reads for `seconds`; returns the seconds that it took. Raises UnreachableError, PayloadError."""
        start_s = time.perf_counter()
        end_s = start_s + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            for number, reader in enumerate(self._readers):
                self._take(number, reader.read(min(left_s, _WAIT_S / len(self._readers))))
        return time.perf_counter() - start_s

    def _take(self, number: int, columns: EntryColumns) -> None:
        if not len(columns):
            return
        self.size_bytes += columns.size_bytes
        now_ms = time.time_ns() // 1_000_000
        before = self._indexes.get(number)
        for index, time_ms, entry in zip(
            columns.last_indexes, columns.broker_times_ms, columns.entries, strict=True
        ):
            # Brokers that number messages spare us a look into each entry but the first.
            if index == UNKNOWN or before is None:
                count = parse_metadata(split_entry(entry).metadata).num_messages_in_batch
            else:
                count = index - before
            before = None if index == UNKNOWN else index
            self.messages += count
            if self.ages is not None and time_ms != UNKNOWN:
                self.ages.add((now_ms - time_ms) * 1_000_000, count)
        if before is not None:
            self._indexes[number] = before

    def close(self) -> None:
        """Closes the readers."""
        for reader in self._readers:
            reader.close()
