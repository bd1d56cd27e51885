"""Publish limits of producers: checked once per vector, only where a limit is set."""

from __future__ import annotations

from typing import Protocol

from magnetar.base.clock import Clock
from magnetar.broker.errors import EncryptionRequiredError, NotAllowedError, RefusedError
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.token_bucket import RateLimiter
from magnetar.broker.topic.entry import metadata_of
from magnetar.runtime.alarms import Alarms
from magnetar.wire.events import SendRun
from magnetar.wire.payload import EntryError


class Throttled(Protocol):
    """A connection that can be left unread for a while."""

    def throttle(self, reason: object) -> None:
        """Reads no more until `unthrottle` with the same reason."""

    def unthrottle(self, reason: object) -> None: ...


def _encrypted(entry: bytes) -> bool:
    try:
        return bool(metadata_of(entry).encryption_keys)
    except EntryError:
        return False


def _delay_ms(entry: bytes) -> int:
    try:
        metadata = metadata_of(entry)
    except EntryError:
        return 0
    return metadata.deliver_at_time - metadata.publish_time if metadata.HasField("deliver_at_time") else 0


class PublishGate:
    """The limits of one topic that concern what is published."""

    __slots__ = ("_alarms", "_clock", "_limits", "_rates", "_throttled")

    def __init__(self, limits: Limits, clock: Clock, alarms: Alarms) -> None:
        self._limits = limits
        self._clock = clock
        self._alarms = alarms
        rate = limits.publish_rate
        own = [RateLimiter(rate, clock.now_ms())] if rate.limits else []
        shared = limits.group.publish if limits.group is not None else None
        self._rates = own if shared is None else [*own, shared]
        self._throttled: set[Throttled] = set()

    def refusals(self, run: SendRun) -> dict[int, RefusedError]:
        """Rows that may not be published, and why."""
        found: dict[int, RefusedError] = {}
        if self._limits.encryption_required:
            for row, entry in enumerate(run.entries):
                if not _encrypted(entry):
                    found[row] = EncryptionRequiredError("messages of this topic must be encrypted")
        largest = self._limits.message_bytes_max
        # A chunk is at most as large as the client was told; the sum of a message's chunks has no limit.
        if largest and not run.chunked:
            for row, entry in enumerate(run.entries):
                if len(entry) > largest:
                    found[row] = NotAllowedError(
                        f"a message of {len(entry)} bytes exceeds this topic's limit of {largest}"
                    )
        longest_ms = self._limits.delay_ms_max
        if longest_ms:
            for row, entry in enumerate(run.entries):
                if _delay_ms(entry) > longest_ms:
                    found[row] = NotAllowedError(
                        f"a message may be held back for {longest_ms} ms at most here"
                    )
        return found

    def passed(self, connection: Throttled, run: SendRun) -> None:
        """Counts a vector that was taken; beyond the rate its connection is not read for a while."""
        if not self._rates:
            return
        now_ms = self._clock.now_ms()
        messages = len(run.entries) if run.counts is None else sum(run.counts)
        for rate in self._rates:
            rate.take(messages, run.size_bytes, now_ms)
        wait_ms = self._wait_ms(now_ms)
        if wait_ms:
            self._throttled.add(connection)
            connection.throttle(self)
            self._alarms.after(self, wait_ms, self._resume)

    def _wait_ms(self, now_ms: int) -> int:
        return max(rate.wait_ms(now_ms) for rate in self._rates)

    def _resume(self) -> None:
        now_ms = self._clock.now_ms()
        wait_ms = self._wait_ms(now_ms)
        if wait_ms:
            self._alarms.after(self, wait_ms, self._resume)
        else:
            self.close()

    def close(self) -> None:
        """Releases all waiting producers: another gate takes over, or none."""
        self._alarms.discard(self)
        throttled, self._throttled = self._throttled, set()
        for connection in throttled:
            connection.unthrottle(self)


def gate_for(limits: Limits, clock: Clock, alarms: Alarms) -> PublishGate | None:
    """The gate that these limits need; None when they limit nothing that is published."""
    shared = limits.group is not None and limits.group.publish is not None
    looks = limits.encryption_required or limits.message_bytes_max or limits.delay_ms_max
    if looks or shared or limits.publish_rate.limits:
        return PublishGate(limits, clock, alarms)
    return None
