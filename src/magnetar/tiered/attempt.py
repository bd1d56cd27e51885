"""One attempt to copy a ledger, as a state machine: results in, effects out.

    begin ─ Remember that an earlier attempt is withdrawn ─ DiscardObjects of it ─ Remember the intent
          ─ ( Convert ─ Upload ─ Verify ) for each segment ─ Remember that it is complete ─ done

There is one effect at a time; the driver that carries it out calls `succeeded` or `failed`. After a failure
the objects of the attempt are deleted. The list keeps naming the attempt, so that the next one deletes what
this one could not.

Before objects of an earlier attempt are deleted, the list says that it is not a copy any more. That change is
by version, for two reasons. If the answer to the attempt's last write was lost, the stored record may say
"complete" without this process knowing; the change then fails, and nothing is deleted. And this process may
be paused before the deletion, for as long as it takes another broker to become the owner: no later owner may
find a copy in the list, delete the ledger from the bookies because of it, and then lose the objects.

A crash leaves, depending on when it comes:
- before the intent is stored: nothing of this attempt;
- after it: objects that the stored list names, which the next attempt deletes first;
- after it is stored as complete: a copy that may be read.
This module never deletes the bookies' copy; `policy.local_copies_that_may_go` decides about that later.

Pure: no input or output, no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from magnetar.base.ids import LedgerId
from magnetar.tiered.api import SealedLedger
from magnetar.tiered.context import OffloadContext, OffloadedCopy, OffloadedSegment


@dataclass(frozen=True, slots=True)
class DiscardObjects:
    """Delete every object of an attempt, by its prefix."""

    copy: OffloadedCopy


@dataclass(frozen=True, slots=True)
class Remember:
    """Store `context` as the ledger's record if the list still holds `known`."""

    ledger_id: LedgerId
    known: OffloadContext | None
    context: OffloadContext


@dataclass(frozen=True, slots=True)
class Convert:
    """Write the next segment to a local file; the result is an OffloadedSegment."""

    first_entry: int


@dataclass(frozen=True, slots=True)
class Upload:
    """Put that file into the store."""

    segment: OffloadedSegment


@dataclass(frozen=True, slots=True)
class Verify:
    """Read the object back and compare it with the bookies' entries."""

    segment: OffloadedSegment


Effect = DiscardObjects | Remember | Convert | Upload | Verify

FOLLOWS: Final[Mapping[type[Effect] | None, frozenset[type[Effect]]]] = {
    None: frozenset({Remember}),
    Remember: frozenset({DiscardObjects, Convert}),
    DiscardObjects: frozenset({Remember}),
    Convert: frozenset({Upload, DiscardObjects}),
    Upload: frozenset({Verify, DiscardObjects}),
    Verify: frozenset({Convert, Remember, DiscardObjects}),
}
"""The effects that may follow each effect; None stands for the begin. The effect under way is the state of an
attempt. It may end after Remember and DiscardObjects."""


class Outcome(Enum):
    """How an attempt ended."""

    COPIED = "copied"
    FAILED = "failed"
    """No object is left, or the next attempt deletes those that are."""
    UNKNOWN = "unknown"
    """This process does not know whether the stored list names the copy as complete."""


class OffloadAttempt:
    """Copies one sealed ledger."""

    def __init__(self, ledger: SealedLedger, *, attempt: UUID, url: str, now_ms: int) -> None:
        """`attempt` is a new, unique id; the ledger holds at least one entry."""
        assert ledger.entries > 0, "an empty ledger leaves the list"
        assert ledger.offload is None or not ledger.offload.local_deleted, "there is nothing to copy from"
        self.outcome: Outcome | None = None
        """None while the attempt is under way."""
        self.error: Exception | None = None
        """Why the attempt failed; None when it did not."""
        self.segments: list[OffloadedSegment] = []
        """Segments that were written, uploaded and compared."""
        self._ledger = ledger
        self._intent = OffloadContext(attempt, url, timestamp_ms=now_ms)
        self._copy = OffloadedCopy(ledger.ledger_id, self._intent)
        self._known = ledger.offload
        """The record in the list, as far as it is known."""
        self._effect: Effect | None = None

    @property
    def copy(self) -> OffloadedCopy:
        """The copy that this attempt makes."""
        return self._copy

    def begin(self) -> Effect:
        """The first effect."""
        earlier = self._known
        if earlier is not None and not earlier.foreign:
            return self._do(Remember(self._ledger.ledger_id, earlier, earlier.withdrawn()))
        return self._do(self._remember_intent())

    def _do(self, effect: Effect) -> Effect:
        before = None if self._effect is None else type(self._effect)
        assert self.outcome is None, f"an attempt goes on that has {self.outcome}"
        assert type(effect) in FOLLOWS[before], f"{effect} follows {self._effect}"
        self._effect = effect
        return effect

    def _remember_intent(self) -> Remember:
        return Remember(self._ledger.ledger_id, self._known, self._intent)

    def succeeded(self, now_ms: int, made: OffloadedSegment | None = None) -> Effect | None:
        """Takes the success of the effect; returns the next one, None at the end. `made`: the segment that
        Convert wrote."""
        effect = self._effect
        assert effect is not None, "nothing is under way"
        if isinstance(effect, DiscardObjects):
            if self.error is not None:
                self._end(Outcome.FAILED)
                return None
            return self._do(self._remember_intent())
        if isinstance(effect, Remember):
            return self._remembered(effect)
        if isinstance(effect, Convert):
            assert made is not None, "Convert gives a segment"
            assert made.first_entry == effect.first_entry <= made.last_entry < self._ledger.entries
            return self._do(Upload(made))
        if isinstance(effect, Upload):
            return self._do(Verify(effect.segment))
        self.segments.append(effect.segment)
        following = effect.segment.last_entry + 1
        if following < self._ledger.entries:
            return self._do(Convert(following))
        complete = self._intent.completed(now_ms=now_ms, segments=tuple(self.segments))
        return self._do(Remember(self._ledger.ledger_id, self._intent, complete))

    def _remembered(self, effect: Remember) -> Effect | None:
        self._known = effect.context
        if effect.context.attempt != self._intent.attempt:
            return self._do(DiscardObjects(OffloadedCopy(effect.ledger_id, effect.context)))
        if effect.context.complete:
            self._end(Outcome.COPIED)
            return None
        return self._do(Convert(0))

    def failed(self, error: Exception, *, refused: bool = False) -> Effect | None:
        """Takes the failure of the effect, which may have been done in part; returns the next one, None at
        the end.

        `refused`: for Remember, it is certain that nothing was stored.
        """
        effect = self._effect
        assert effect is not None, "nothing is under way"
        first = self.error is None
        if first:
            self.error = error
        if isinstance(effect, Remember) and effect.context.complete and not refused:
            # The record may have been stored: the objects must not be deleted.
            self._end(Outcome.UNKNOWN)
            return None
        if isinstance(effect, DiscardObjects):
            self._end(Outcome.FAILED)
            return None
        return self._do(DiscardObjects(self._copy))

    def _end(self, outcome: Outcome) -> None:
        assert isinstance(self._effect, Remember | DiscardObjects), f"it ends with {self._effect}"
        assert self.outcome is None, "it ends twice"
        self._effect = None
        self.outcome = outcome

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.outcome is None or self._effect is None, "it is over, and something is under way"
        assert self.outcome is not Outcome.COPIED or self.error is None, "copied in spite of an error"
        assert self.outcome is not Outcome.FAILED or self.error is not None, "failed for no reason"
        following = 0
        for segment in self.segments:
            assert segment.first_entry == following, "a gap between segments"
            following = segment.last_entry + 1
        assert following <= self._ledger.entries, "more was copied than there is"
        assert not isinstance(self._effect, DiscardObjects) or not self._effect.copy.context.complete, (
            "objects are deleted that the list names as a copy"
        )
        assert self.outcome is not Outcome.COPIED or following == self._ledger.entries, "a part was left out"
