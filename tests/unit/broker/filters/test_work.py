"""What the loop judges by itself, and what it has judged beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.filters.entry_filter import Candidate, Context, Verdict
from magnetar.broker.filters.expression import PROPERTY, ExpressionFilter
from magnetar.broker.filters.judge import WORK_US_MAX, Judge
from magnetar.broker.filters.rules import BUILT_IN, FilterRules
from magnetar.broker.filters.work import TURN_MS_MAX, JudgingWork, TurnWork
from magnetar.runtime.interruption import TookTooLongError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

SEARCH = "contains(properties.a, properties.b)"


class Unhurried:
    """A pace without rests, which counts steps and ends the work after some of them."""

    def __init__(self, steps_max: int = 1 << 40) -> None:
        self.steps = 0
        self._steps_max = steps_max

    def step(self) -> None:
        self.steps += 1
        if self.steps > self._steps_max:
            raise TookTooLongError("over")


def entry(**properties: str) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    for name, value in properties.items():
        metadata.properties.add(key=name, value=value)
    return build_entry(metadata, b"x")


def batch(count: int, colour: str = "blue") -> bytes:
    single = pb.SingleMessageMetadata(properties=[pb.KeyValue(key="colour", value=colour)])
    plain = build_batch([(single, b"x")] * count)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.num_messages_in_batch, metadata.uncompressed_size = count, len(plain)
    return build_entry(metadata, plain)


def judge_of(text: str, turn: TurnWork | None = None, clock: ManualClock | None = None) -> Judge:
    rules = FilterRules(names=("expression",), turn=turn or TurnWork())
    return Judge(rules, "t", "s", lambda: {PROPERTY: text}, clock or ManualClock())


LARGE: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "a search over large texts": (SEARCH, lambda: entry(a="A" * 4_000, b="A" * 1_000 + "B" + "A" * 1_000), 1),
    "many properties": ('key == "k"', lambda: entry(**{f"{n:x}": "" for n in range(2_000)}), 1),
    "many parts": (" or ".join(['key == "k"'] * 45), lambda: entry(a="x" * 300), 1),
    "a batch of many messages": ('properties.colour == "red"', lambda: batch(1_000), 1_000),
    "a batch of large messages": ('key == "k"', lambda: batch(2, "x" * 20_000), 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_takes_long_is_not_judged_in_the_loop(name: str) -> None:
    text, make, count = LARGE[name]
    made = make()
    judge = judge_of(text)
    assert judge.verdicts([made], [count]) == []
    foreseen = judge.foresee([made], [count], Unhurried())
    assert judge.verdicts([made], [count], foreseen) == [Verdict.REJECT]


@pytest.mark.parametrize("text", ['properties.colour == "red"', SEARCH, " or ".join([SEARCH] * 20)])
def test_a_go_of_the_loop_has_a_bounded_work(text: str) -> None:
    entries = [entry(colour="blue", a="A" * size, b="B") for size in range(0, 100, 10)] * 30
    judge = judge_of(text)
    judged = len(judge.verdicts(entries, [1] * len(entries)))
    judging = ExpressionFilter(Context("t", "s", {PROPERTY: text}))
    works = [judging.work_us(candidate(each)) for each in entries[: judged + 1]]
    assert sum(works[:judged]) <= WORK_US_MAX < sum(works)


def candidate(made: bytes, count: int = 1) -> Candidate:
    found = Judge(FilterRules(), "t", "s", dict, ManualClock())._candidate(made, count)
    assert found is not None
    return found


def test_work_grows_with_all_that_it_depends_on() -> None:
    small, large = candidate(entry(a="x")), candidate(entry(a="x" * 500))
    assert JudgingWork(1, 0).of(small) < JudgingWork(1, 0).of(large)
    assert JudgingWork(1, 0).of(small) < JudgingWork(2, 0).of(small) < JudgingWork(2, 1).of(small)
    assert JudgingWork(1, 0).of(candidate(batch(2), 2)) < JudgingWork(1, 0).of(candidate(batch(20), 20))
    assert JudgingWork(1, 0).of(candidate(batch(2), 2)) < JudgingWork(1, 0).of(
        candidate(batch(2, "x" * 99), 2)
    )


def test_a_go_judges_nothing_when_the_time_of_the_turn_is_over() -> None:
    """Thousands of subscriptions may get the same message in one turn."""
    later: list[Callable[[], None]] = []
    turn = TurnWork(later.append)
    judges = [judge_of('key == "k"', turn) for _ in range(3)]
    made = entry(a="b")
    assert judges[0].verdicts([made], [1]) == [Verdict.REJECT]
    assert len(later) == 1
    turn.took(TURN_MS_MAX)
    assert turn.spent
    assert judges[1].verdicts([made], [1]) == []
    later.pop()()
    assert not later
    assert judges[2].verdicts([made], [1]) == [Verdict.REJECT]


def test_time_in_the_loop_is_measured() -> None:
    clock = ManualClock()
    turn = TurnWork(lambda work: None)

    class Slow:
        def __init__(self, context: Context) -> None:
            pass

        def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
            clock.advance(int(TURN_MS_MAX))
            return [Verdict.ACCEPT] * len(candidates)

    judge = Judge(FilterRules(names=("slow",), known={"slow": Slow}, turn=turn), "t", "s", dict, clock)
    assert judge.verdicts([entry()], [1]) == [Verdict.ACCEPT]
    assert turn.spent


def test_an_expression_that_takes_too_long_has_its_entry_sent(caplog: pytest.LogCaptureFixture) -> None:
    """A producer must not be able to hold up a subscription; what is rejected is acknowledged."""
    made = entry(a="A" * 20_000, b="A" * 5_000 + "B" + "A" * 5_000)
    judge = judge_of(SEARCH)
    foreseen = judge.foresee([made], [1], Unhurried(1))
    assert judge.verdicts([made], [1], foreseen) == [Verdict.ACCEPT]
    assert "an entry is sent without a check" in caplog.text


def test_what_was_judged_before_the_time_was_over_counts(caplog: pytest.LogCaptureFixture) -> None:
    made = [entry(colour=colour) for colour in ("red", "blue", "red")]
    judge = judge_of('properties.colour == "red"')
    assert judge.foresee(made, [1] * 3, Unhurried(2)) == [[Verdict.ACCEPT], [Verdict.REJECT]]
    assert judge.foresee(made, [1] * 3, Unhurried(3)) == [
        [Verdict.ACCEPT],
        [Verdict.REJECT],
        [Verdict.ACCEPT],
    ]
    assert not caplog.text


def test_installed_filters_are_asked_in_the_loop_alone_and_in_their_order() -> None:
    asked: list[bytes] = []

    class Installed:
        def __init__(self, context: Context) -> None:
            pass

        def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
            asked.extend(bytes(each.payload) for each in candidates)
            return [Verdict.RESCHEDULE if each.messages == 9 else Verdict.ACCEPT for each in candidates]

    known = {**BUILT_IN, "own": Installed}
    entries, counts = [batch(1_000), batch(9), batch(1_000, "red")], [1_000, 9, 1_000]
    for names, asked_of, middle in (
        (("expression", "own"), 1, Verdict.REJECT),
        (("own", "expression"), 3, Verdict.RESCHEDULE),
    ):
        asked.clear()
        rules = FilterRules(names=names, known=known)
        judge = Judge(rules, "t", "s", lambda: {PROPERTY: 'properties.colour == "red"'}, ManualClock())
        foreseen = judge.foresee(entries, counts, Unhurried())
        assert not asked
        assert judge.verdicts(entries, counts, foreseen) == [Verdict.REJECT, middle, Verdict.ACCEPT]
        assert len(asked) == asked_of


def test_a_batch_steps_between_its_messages() -> None:
    pace = Unhurried()
    judge_of('properties.colour == "red"').foresee([batch(500)], [500], pace)
    assert pace.steps > 1_000


def test_a_message_of_a_batch_with_huge_metadata_is_not_parsed_and_its_batch_is_sent() -> None:
    """A hundred thousand properties are parsed in one piece."""
    judge = judge_of('properties.colour == "red"')
    assert judge.foresee([batch(2, "x" * 70_000)], [2], Unhurried()) == [[Verdict.ACCEPT]]
