"""Asks the filters of one subscription (pure but for what installed filters do)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.filters.entry_filter import Candidate, Context, EntryFilter, FilterError, Verdict
from magnetar.broker.filters.rules import FilterRules
from magnetar.wire.payload import EntryError, entry_layout, parse_metadata

_log = logging.getLogger("magnetar.broker.filters")

_WARN_AGAIN_MS: Final = 60_000
"""Between two warnings of slow filters of one subscription."""

WORK_BYTES_MAX: Final = 256 << 10
"""Of metadata and opened batches that are judged in one go, unless one entry alone has more: some
milliseconds."""


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

    def verdicts(self, entries: Sequence[bytes], counts: Sequence[int]) -> list[Verdict]:
        """Verdicts for as many entries from the front as `WORK_BYTES_MAX` allows in one go, one at least;
        `counts` are their messages. Raises FilterError.

        A damaged entry is accepted: its consumer will tell that it is damaged.
        """
        if self._filters is None:
            self._filters = self._made()
        judged = len(entries)
        places: list[int] = []
        candidates: list[Candidate] = []
        left_bytes = WORK_BYTES_MAX
        for place, entry in enumerate(entries):
            try:
                _, metadata_at, payload_at = entry_layout(entry)
                metadata = parse_metadata(entry[metadata_at:payload_at])
            except EntryError:  # filters judge what they can read; consumers get the rest as it is
                continue
            candidate = Candidate(metadata, memoryview(entry)[payload_at:], counts[place])
            left_bytes -= payload_at - metadata_at + candidate.opened_bytes
            if left_bytes < 0 and place:
                judged = place
                break
            places.append(place)
            candidates.append(candidate)
        found = [Verdict.ACCEPT] * judged
        for name, judging in self._filters:
            answers = self._asked(name, judging, candidates)
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer
            left = [i for i, answer in enumerate(answers) if answer is Verdict.ACCEPT]
            if len(left) < len(answers):
                places, candidates = [places[i] for i in left], [candidates[i] for i in left]
            if not candidates:
                break
        return found

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
