"""Asks the filters of one subscription (pure but for what installed filters do).

The loop asks an expression about what takes it half a millisecond at most (`work.py`). When the first entry
alone takes longer, `verdicts` gives none: then `foresee` asks the expressions beside the loop, about more
entries, and `verdicts` goes through all filters with what they said. Installed filters are asked in the loop
alone, as only there they can be interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.filters.entry_filter import (
    METADATA_BYTES_MAX,
    Candidate,
    Context,
    EntryFilter,
    FilterError,
    PacedFilter,
    Pacing,
    Verdict,
)
from magnetar.broker.filters.rules import FilterRules
from magnetar.runtime.interruption import TookTooLongError
from magnetar.wire.payload import EntryError, entry_layout, parse_metadata

_log = logging.getLogger("magnetar.broker.filters")

_WARN_AGAIN_MS: Final = 60_000
"""Between two warnings of slow filters of one subscription."""

WORK_BYTES_MAX: Final = 256 << 10
"""Of metadata and opened batches that are judged in one go, unless one entry alone has more."""
WORK_US_MAX: Final = 500.0
"""Microseconds of expressions in one go of the loop, at most: a turn ends with one."""
TOGETHER: Final = 50
"""Entries that installed filters decide on between two readings of the clock."""
LIMIT_S: Final = 0.1
"""Seconds of processor time that expressions may take beside the loop for a vector, as installed filters may
in it."""

Foreseen = Sequence[Sequence[Verdict | None]]
"""For each entry what each filter will say; None for a filter that is asked in the loop."""


@dataclass(slots=True)
class FilterCounts:
    """Decisions of a subscription's filters, in messages."""

    accepted: int = 0
    rejected: int = 0
    rescheduled: int = 0

    @property
    def processed(self) -> int:
        """All that were judged; what is judged again counts again, as in Pulsar."""
        return self.accepted + self.rejected + self.rescheduled

    def add(self, verdict: Verdict, messages: int) -> None:
        """Counts the messages of one entry."""
        if verdict is Verdict.ACCEPT:
            self.accepted += messages
        elif verdict is Verdict.REJECT:
            self.rejected += messages
        else:
            self.rescheduled += messages


class Judge:
    """The filters of one subscription, in their order: the first that does not accept an entry decides."""

    __slots__ = (
        "_clock",
        "_context",
        "_filters",
        "_only_paced",
        "_paced",
        "_properties",
        "_quiet_until_ms",
        "rules",
        "slow_vectors",
    )

    def __init__(
        self,
        rules: FilterRules,
        topic: str,
        subscription: str,
        properties: Callable[[], Mapping[str, str]],
        clock: Clock,
    ) -> None:
        """`properties`: the present ones of the subscription."""
        self.rules = rules
        self._properties = properties
        self._context = Context(topic, subscription, dict(properties()))
        self._clock = clock
        self._filters: list[tuple[str, EntryFilter]] | None = None
        self._paced: list[PacedFilter] = []
        self._only_paced = False
        self._quiet_until_ms = 0.0
        self.slow_vectors = 0
        """Vectors for which a filter exceeded its budget."""

    def renewed(self) -> bool:
        """Takes over the subscription's properties; returns whether they changed."""
        properties = self._properties()
        if properties == self._context.properties:
            return False
        self._context = Context(self._context.topic, self._context.subscription, dict(properties))
        self._filters = None
        return True

    def verdicts(
        self, entries: Sequence[bytes], counts: Sequence[int], foreseen: Foreseen | None = None
    ) -> list[Verdict]:
        """Verdicts for as many entries from the front as one go of the loop has time for; none when the
        turn's time is used up (`rules.turn`), or the first takes too long for any: see `foresee`. `counts`
        are their messages. Raises FilterError.

        A damaged entry is accepted: its consumer will tell that it is damaged.
        """
        if foreseen is not None:
            return self._verdicts(entries[: len(foreseen)], counts, foreseen)
        if self.rules.turn.spent:
            return []
        began_ms = self._clock.monotonic_ms()
        try:
            return self._verdicts(entries, counts, None)
        finally:
            self.rules.turn.took(self._clock.monotonic_ms() - began_ms)

    def _verdicts(
        self, entries: Sequence[bytes], counts: Sequence[int], foreseen: Foreseen | None
    ) -> list[Verdict]:
        filters = self._filters_now()
        if not self._only_paced:
            entries = entries[:TOGETHER]
        judged = len(entries)
        places: list[int] = []
        candidates: list[Candidate] = []
        left_bytes, left_us = WORK_BYTES_MAX, WORK_US_MAX if foreseen is None else 0.0
        for place, entry in enumerate(entries):
            candidate = self._candidate(entry, counts[place])
            if candidate is None:
                continue
            left_bytes -= candidate.metadata_bytes + candidate.opened_bytes
            if foreseen is None:
                left_us -= sum([each.work_us(candidate) for each in self._paced])
            if left_us < 0 or (left_bytes < 0 and place):
                judged = place
                break
            places.append(place)
            candidates.append(candidate)
        found = [Verdict.ACCEPT] * judged
        for number, (name, judging) in enumerate(filters):
            if foreseen is None or not isinstance(judging, PacedFilter):
                answers = self._asked(name, judging, candidates)
            else:
                answers = [foreseen[place][number] or Verdict.ACCEPT for place in places]
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer
            left = [i for i, answer in enumerate(answers) if answer is Verdict.ACCEPT]
            if len(left) < len(answers):
                places, candidates = [places[i] for i in left], [candidates[i] for i in left]
            if not candidates:
                break
        return found

    def foresee(self, entries: Sequence[bytes], counts: Sequence[int], pace: Pacing) -> Foreseen:
        """What expressions say of the first entries, one at least; beside the loop. Raises FilterError.

        An entry that takes an expression longer than it has time is accepted: what is rejected is
        acknowledged, and a producer must not be able to hold up a subscription.
        """
        filters = self._filters_now()
        foreseen: list[list[Verdict | None]] = []
        left_bytes = WORK_BYTES_MAX
        for entry, count in zip(entries, counts, strict=True):
            candidate = self._candidate(entry, count)
            said: list[Verdict | None] = [None] * len(filters)
            if candidate is not None:
                left_bytes -= candidate.metadata_bytes + candidate.opened_bytes
                if left_bytes < 0 and foreseen:
                    break
                try:
                    said = self._said(filters, candidate, pace)
                except TookTooLongError:
                    if foreseen:
                        break
                    self._gave_up()
            foreseen.append(said)
        return foreseen

    def _said(
        self, filters: Sequence[tuple[str, EntryFilter]], candidate: Candidate, pace: Pacing
    ) -> list[Verdict | None]:
        said: list[Verdict | None] = []
        for name, each in filters:
            try:
                said.append(each.judge_paced(candidate, pace) if isinstance(each, PacedFilter) else None)
            except (FilterError, TookTooLongError):
                raise
            except Exception as error:  # our bug: it holds its own subscription up, and the others go on
                raise FilterError(f"entry filter {name!r} failed: {error!r}") from error
        return said

    def _candidate(self, entry: bytes, count: int) -> Candidate | None:
        """None for what is accepted without a look: a damaged entry, and one with very much metadata where
        only expressions would see it."""
        try:
            _, metadata_at, payload_at = entry_layout(entry)
            if payload_at - metadata_at > METADATA_BYTES_MAX and self._only_paced:
                return None
            metadata = parse_metadata(entry[metadata_at:payload_at])
        except EntryError:  # filters judge what they can read; consumers get the rest as it is
            return None
        return Candidate(metadata, memoryview(entry)[payload_at:], count)

    def _filters_now(self) -> list[tuple[str, EntryFilter]]:
        if self._filters is None:
            self._filters = self._made()
            self._paced = [each for _, each in self._filters if isinstance(each, PacedFilter)]
            self._only_paced = len(self._paced) == len(self._filters)
        return self._filters

    def _made(self) -> list[tuple[str, EntryFilter]]:
        made = []
        for name in self.rules.names:
            factory = self.rules.known.get(name)
            if factory is None:
                raise FilterError(f"this broker has no entry filter {name!r} any more")
            try:
                made.append((name, factory(self._context)))
            except FilterError:
                raise
            except Exception as error:  # a third-party class may raise any error
                raise FilterError(f"entry filter {name!r} cannot begin: {error!r}") from error
        return made

    def _asked(self, name: str, judging: EntryFilter, candidates: list[Candidate]) -> Sequence[Verdict]:
        began_ms = self._clock.monotonic_ms()
        try:
            answers = judging.judge(candidates)
        except FilterError:
            raise
        except Exception as error:  # a third-party class may raise any error
            raise FilterError(f"entry filter {name!r} failed: {error!r}") from error
        took_ms = self._clock.monotonic_ms() - began_ms
        if took_ms > self.rules.budget_ms:
            self._was_slow(name, len(candidates), took_ms)
        if len(answers) != len(candidates) or not all(isinstance(answer, Verdict) for answer in answers):
            raise FilterError(f"entry filter {name!r} did not give a verdict for each entry")
        return answers

    def _gave_up(self) -> None:
        _log.warning(
            "%s, subscription %s: an entry is sent without a check, as the filter's expression took more than"
            " %g ms for it: give it fewer parts, or messages less metadata",
            self._context.topic,
            self._context.subscription,
            LIMIT_S * 1_000,
        )

    def _was_slow(self, name: str, count: int, took_ms: float) -> None:
        self.slow_vectors += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._quiet_until_ms:
            return
        self._quiet_until_ms = now_ms + _WARN_AGAIN_MS
        _log.warning(
            "%s, subscription %s: entry filter %s took %.1f ms for %d entries, its budget is %d ms; all "
            "clients waited; %d slow vectors so far",
            self._context.topic,
            self._context.subscription,
            name,
            took_ms,
            count,
            self.rules.budget_ms,
            self.slow_vectors,
        )
