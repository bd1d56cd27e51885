"""Installed filters that take too long, for whatever message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.filters import time_limit
from magnetar.broker.filters.entry_filter import Candidate, Context, EntryFilter, FilterError, Verdict
from magnetar.broker.filters.judge import Judge
from magnetar.broker.filters.rules import FilterRules
from magnetar.broker.filters.time_limit import OVERRUNS_MAX, PERIOD_MS, TimeLimit
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry


class Searching:
    """A filter that never comes to an end for messages of one key."""

    asked = 0

    def __init__(self, context: Context) -> None:
        if context.subscription == "never begins":
            while True:
                pass

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        Searching.asked += 1
        while any(each.metadata.partition_key == "poison" for each in candidates):
            pass
        return [Verdict.REJECT] * len(candidates)


def entry(key: str) -> bytes:
    return build_entry(
        pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key), b"x"
    )


def judge_of(limit: TimeLimit, subscription: str = "s") -> Judge:
    rules = FilterRules(names=("searching",), known={"searching": limit})
    return Judge(rules, "t", subscription, dict, ManualClock())


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> tuple[TimeLimit, ManualClock]:
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.003)
    Searching.asked = 0
    clock = ManualClock()
    return TimeLimit("searching", Searching, clock.monotonic_ms), clock


def test_one_that_takes_too_long_is_interrupted(limited: tuple[TimeLimit, ManualClock]) -> None:
    judge = judge_of(limited[0])
    assert judge.verdicts([entry("a")], [1]) == [Verdict.REJECT]
    with pytest.raises(FilterError, match="'searching' took more than 3 ms"):
        judge.verdicts([entry("poison")], [1])
    assert judge.verdicts([entry("a")], [1]) == [Verdict.REJECT]
    with pytest.raises(FilterError, match="took more than"):
        judge_of(limited[0], "never begins").verdicts([entry("a")], [1])


def test_one_that_is_interrupted_again_and_again_is_not_asked(
    limited: tuple[TimeLimit, ManualClock],
) -> None:
    """Whichever subscriptions ask it: a client may make as many as it likes."""
    limit, clock = limited
    for number in range(OVERRUNS_MAX):
        with pytest.raises(FilterError, match="took more than"):
            judge_of(limit, f"s{number}").verdicts([entry("poison")], [1])
    # On a busy machine the time of one may end before it is called.
    asked = Searching.asked
    for key in ("poison", "a"):
        with pytest.raises(FilterError, match=f"interrupted {OVERRUNS_MAX} times"):
            judge_of(limit).verdicts([entry(key)], [1])
    assert Searching.asked == asked <= OVERRUNS_MAX
    clock.advance(int(PERIOD_MS))
    assert judge_of(limit).verdicts([entry("a")], [1]) == [Verdict.REJECT]


def test_installed_filters_are_limited_and_the_built_in_one_needs_none(
    limited: tuple[TimeLimit, ManualClock],
) -> None:
    made: EntryFilter = limited[0](Context("t", "s", {}))
    assert made.judge([]) == []
