"""When a topic is compacted, up to where, and what came of it. Pure.

    NOT_RUN, SUCCESS, ERROR ──begin──▶ RUNNING
    RUNNING ──succeed──▶ SUCCESS
    RUNNING ──fail──▶ ERROR

`topic_compaction.py` does what is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.machine import Machine
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import ConflictError
from magnetar.broker.policies.policy_shapes import Document

THRESHOLD_POLICY: Final = "compaction_threshold"
"""Key of the policy of a namespace or topic: bytes since the horizon that begin a compaction; 0: never."""


class CompactionStatus(Enum):
    """How the last compaction went, in Pulsar's words (LongRunningProcessStatus)."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


TRANSITIONS: Final[Mapping[CompactionStatus, frozenset[CompactionStatus]]] = {
    CompactionStatus.NOT_RUN: frozenset({CompactionStatus.RUNNING}),
    CompactionStatus.RUNNING: frozenset({CompactionStatus.SUCCESS, CompactionStatus.ERROR}),
    CompactionStatus.SUCCESS: frozenset({CompactionStatus.RUNNING}),
    CompactionStatus.ERROR: frozenset({CompactionStatus.RUNNING}),
}


class CompactionJob:
    """The compactions of one topic since it was loaded."""

    __slots__ = (
        "_began_ms",
        "_machine",
        "duration_ms",
        "error",
        "failed_ms",
        "horizon",
        "removed_messages",
        "retain_null_key",
        "succeeded_ms",
        "threshold_bytes",
    )

    def __init__(self, topic: str) -> None:
        """`topic` is for people."""
        self.threshold_bytes = 0
        """Bytes after the horizon that begin a compaction; 0: only on demand."""
        self.retain_null_key = False
        """Whether messages without a key are kept."""
        self.horizon = EARLIEST
        """The last entry of the log that was compacted; EARLIEST before the first compaction."""
        self.error = ""
        """Why the last compaction failed; empty when it did not."""
        self.removed_messages = 0
        """Entries that the last compaction left out."""
        self.succeeded_ms = 0
        """When the last compaction that succeeded ended, Unix ms; 0: none since loading."""
        self.failed_ms = 0
        """When the last compaction that failed ended, Unix ms; 0: none since loading."""
        self.duration_ms = 0
        """How long the last compaction took."""
        self._began_ms: float | None = None
        self._machine = Machine(topic, TRANSITIONS, CompactionStatus.NOT_RUN)

    @property
    def status(self) -> CompactionStatus:
        """How the last compaction went, or that one runs."""
        return self._machine.now

    @property
    def running(self) -> bool:
        """Whether a compaction is under way."""
        return self._machine.now is CompactionStatus.RUNNING

    def apply(
        self,
        config: BrokerConfig,
        topic_policies: Document,
        namespace_policies: Document,
    ) -> None:
        """These are in force now; the topic's threshold wins over the namespace's, which wins over the
        broker's."""
        default = namespace_policies.get(THRESHOLD_POLICY, config.compaction_threshold_bytes)
        # A number below 0, which an unchecked document may have, would always be due.
        self.threshold_bytes = max(0, int(topic_policies.get(THRESHOLD_POLICY, default) or 0))
        self.retain_null_key = config.compaction_retain_null_key

    # -- when, and up to where ---------------------------------------------------------------------

    def is_due(self, *, new_entries: int, log_bytes: int, log_entries: int) -> bool:
        """Whether enough was published since the horizon.

        The log knows the bytes of all its entries only; those of the new ones are reckoned by their share.
        """
        assert new_entries >= 0, "the horizon lies behind the log"
        threshold = self.threshold_bytes
        return (
            threshold > 0 and new_entries > 0 and log_bytes * new_entries >= threshold * max(log_entries, 1)
        )

    def next_horizon(self, last: Position | None) -> Position | None:
        """Up to where a compaction goes that begins now; None: there is nothing new. `last`: the last entry
        that consumers can get, None when there is none."""
        return None if last is None or last <= self.horizon else last

    # -- what came of it ---------------------------------------------------------------------------

    def loaded(self, horizon: Position) -> None:
        """An earlier process has compacted up to here."""
        assert self.horizon == EARLIEST, "a topic is loaded once"
        assert not self.running, "it is loaded before it is compacted"
        self.horizon = horizon

    def begin(self, topic: object, monotonic_ms: float) -> None:
        """A compaction begins. Raises ConflictError while one runs."""
        if self.running:
            raise ConflictError(f"compaction of {topic} is already in progress")
        self._machine.go(CompactionStatus.RUNNING, "a compaction begins")
        self._began_ms = monotonic_ms

    def switched(self, horizon: Position, removed: int) -> None:
        """What was compacted up to `horizon` holds from now on; `removed`: entries that were left out."""
        assert horizon > self.horizon, f"{horizon} lies before what was compacted, {self.horizon}"
        assert removed >= 0
        self.horizon = horizon
        self.removed_messages = removed

    def succeed(self, now_ms: int, monotonic_ms: float) -> None:
        """The compaction ended well."""
        self._machine.go(CompactionStatus.SUCCESS, "it ended")
        self.error, self.succeeded_ms = "", now_ms
        self._end(monotonic_ms)

    def fail(self, reason: str, now_ms: int, monotonic_ms: float) -> None:
        """It did not; the result before it stays in force."""
        assert reason, "a failure has a reason"
        self._machine.go(CompactionStatus.ERROR, reason)
        self.error, self.failed_ms = reason, now_ms
        self._end(monotonic_ms)

    def _end(self, monotonic_ms: float) -> None:
        assert self._began_ms is not None, self._machine.story
        self.duration_ms = int(monotonic_ms - self._began_ms)
        self._began_ms = None

    def check(self) -> None:
        """Asserts what must always hold."""
        story = self._machine.story
        assert self.running == (self._began_ms is not None), story
        assert self.status is not CompactionStatus.ERROR or self.error, f"failed for no reason: {story}"
        assert self.status is not CompactionStatus.SUCCESS or not self.error, (
            f"succeeded in spite of an error: {story}"
        )
        assert self.threshold_bytes >= 0
        assert self.duration_ms >= 0, "it ended before it began"
