"""Who may publish what, and how fast: asked once per vector, only where a limit is set."""

from __future__ import annotations

from typing import Protocol

from magnetar.base.clock import Clock
from magnetar.broker.entry import metadata_of
from magnetar.broker.errors import EncryptionRequiredError, NotAllowedError, RefusedError
from magnetar.broker.limits.limits import Limits
from magnetar.broker.limits.token_bucket import RateLimiter
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


class PublishGate:
    """The limits of one topic that concern what is published."""

    __slots__ = ("_alarms", "_clock", "_limits", "_rate", "_throttled")

    def __init__(self, limits: Limits, clock: Clock, alarms: Alarms) -> None:
        self._limits = limits
        self._clock = clock
        self._alarms = alarms
        rate = limits.publish_rate
        self._rate = RateLimiter(rate, clock.now_ms()) if rate.limits else None
        self._throttled: set[Throttled] = set()

    def refusals(self, run: SendRun) -> dict[int, RefusedError]:
        """Rows that may not be published, and why."""
        found: dict[int, RefusedError] = {}
        if self._limits.encryption_required:
            for row, entry in enumerate(run.entries):
                if not _encrypted(entry):
                    found[row] = EncryptionRequiredError("messages of this topic must be encrypted")
        largest = self._limits.message_bytes_max
        # Pieces of a chunked message are as large as the client was told; their sum is nobody's business.
        if largest and not run.chunked:
            for row, entry in enumerate(run.entries):
                if len(entry) > largest:
                    found[row] = NotAllowedError(
                        f"a message of {len(entry)} bytes exceeds this topic's limit of {largest}"
                    )
        return found

    def passed(self, connection: Throttled, run: SendRun) -> None:
        """Counts a vector that was taken; beyond the rate its connection is not read for a while."""
        if self._rate is None:
            return
        now_ms = self._clock.now_ms()
        messages = len(run.entries) if run.counts is None else sum(run.counts)
        self._rate.take(messages, run.size_bytes, now_ms)
        wait_ms = self._rate.wait_ms(now_ms)
        if wait_ms:
            self._throttled.add(connection)
            connection.throttle(self)
            self._alarms.set(self, now_ms + wait_ms, self._resume)

    def _resume(self) -> None:
        assert self._rate is not None
        now_ms = self._clock.now_ms()
        wait_ms = self._rate.wait_ms(now_ms)
        if wait_ms:
            self._alarms.set(self, now_ms + wait_ms, self._resume)
        else:
            self.close()

    def close(self) -> None:
        """Lets everybody go on: another gate takes over, or none."""
        self._alarms.discard(self)
        throttled, self._throttled = self._throttled, set()
        for connection in throttled:
            connection.unthrottle(self)


def gate_for(limits: Limits, clock: Clock, alarms: Alarms) -> PublishGate | None:
    """The gate that these limits need; None when they limit nothing that is published."""
    if limits.encryption_required or limits.message_bytes_max or limits.publish_rate.limits:
        return PublishGate(limits, clock, alarms)
    return None
