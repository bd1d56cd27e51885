"""Which entry filters there are, which are in force, and what the built-in one selects."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters import installed
from magnetar.broker.filters.entry_filter import Candidate, Context, FilterError, Verdict
from magnetar.broker.filters.expression import PROPERTY, ExpressionFilter
from magnetar.broker.filters.judge import Judge
from magnetar.broker.filters.rules import BUILT_IN, FilterRules
from magnetar.client.compression import compress
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry


def chosen(names: str) -> dict[str, Any]:
    return {"entryFilters": {"entryFilterNames": names}}


def test_the_topic_wins_over_its_namespace_and_that_over_the_broker() -> None:
    rules = FilterRules(names=("expression",))
    assert rules.under({}, {}) is rules
    assert rules.under({}, chosen("a, b,a")).names == ("a", "b")
    assert rules.under(chosen("c"), chosen("a,b")).names == ("c",)
    fixed = FilterRules(override=False)
    assert fixed.under(chosen("c"), {}) is fixed


@pytest.mark.parametrize("names", [(), ("com.company.Filter",), ("expression", "even")])
def test_only_known_ones_can_be_chosen(names: tuple[str, ...]) -> None:
    with pytest.raises(PreconditionFailedError, match="there are expression"):
        FilterRules().check_choice(names)


def test_none_can_be_chosen_where_policies_may_not() -> None:
    FilterRules().check_choice(("expression",))
    with pytest.raises(PreconditionFailedError, match="allowOverrideEntryFilters"):
        FilterRules(override=False).check_choice(("expression",))


@pytest.mark.parametrize(
    "text",
    [
        'properties.colour == "red"',
        'properties["colour"] in ("red", "blue") and key == "k"',
        "number(properties.amount) > 6 and not number(properties.colour) > 0",
        'starts(key, "k") and ends(properties.colour, "d") and contains(properties.colour, "e")',
        "publish_time == 17 and event_time is None and sequence_id == 3 and producer == 'p'",
        "size == 4 and messages == 1",
        "properties.absent is None",
    ],
)
def test_what_an_expression_selects_by(text: str) -> None:
    assert judged(text) is Verdict.ACCEPT
    assert judged(f"not ({text})") is Verdict.REJECT


def judged(text: str, **fields: Any) -> Verdict:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=3, publish_time=17, partition_key="k")
    metadata.properties.add(key="colour", value="red")
    metadata.properties.add(key="amount", value="7")
    metadata.MergeFrom(pb.MessageMetadata(**fields))
    return ExpressionFilter(Context("t", "s", {PROPERTY: text})).judge(
        [Candidate(metadata, memoryview(b"body"), 1)]
    )[0]


def test_a_key_of_bytes_is_text_too() -> None:
    assert judged('key == "k"', partition_key="aw==", partition_key_b64_encoded=True) is Verdict.ACCEPT


@pytest.mark.parametrize(
    "text",
    ["", "colour ==", "matches(key, 'x')", "value == 1", "1 == 1 " * 500, "(" * 900, "1 + " * 110 + "1 > 0"],
)
def test_what_is_no_expression_is_said(text: str) -> None:
    with pytest.raises(FilterError, match=PROPERTY):
        ExpressionFilter(Context("t", "s", {PROPERTY: text}))


def test_an_expression_that_is_long_is_refused_before_it_is_read() -> None:
    """Of few parts, so that nothing else bounds it."""
    text = f'key == "{"k" * 3_000}"'
    with pytest.raises(FilterError, match="more than 2000 characters"):
        ExpressionFilter(Context("t", "s", {PROPERTY: text}))


def test_installed_ones_must_be_allowed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("colours", "magnetar.broker.filters.expression:ExpressionFilter", installed.GROUP),
        EntryPoint("twice", "a:b", installed.GROUP),
        EntryPoint("twice", "c:d", installed.GROUP),
        EntryPoint("absent", "magnetar.nothing:Nothing", installed.GROUP),
        EntryPoint("text", "magnetar.broker.filters.expression:NAME", installed.GROUP),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints(points))
    assert installed.known_filters(()) is BUILT_IN
    assert installed.known_filters(("colours",)).keys() == {"expression", "colours"}
    for name in ("twice", "absent", "text", "never", "expression"):
        with pytest.raises(StartupError, match=name):
            installed.known_filters((name,))


def test_what_a_batch_says_of_its_messages_is_bounded_by_the_length_of_the_expression() -> None:
    """A text that is searched slowly, a megabyte of it in a batch, and two dozen searches took a tenth of a
    second for one entry."""

    def of_batch(text: str, value_bytes: int) -> Verdict:
        single = pb.SingleMessageMetadata(properties=[pb.KeyValue(key="a", value="A" * 50_000)])
        plain = build_batch([(single, b"x")] * (value_bytes // 50_000))
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=value_bytes // 50_000
        )
        candidate = Candidate(metadata, memoryview(plain), value_bytes // 50_000)
        return ExpressionFilter(Context("t", "s", {PROPERTY: text})).judge([candidate])[0]

    search = 'contains(properties.a, "AAABAAA")'
    assert of_batch(search, 500_000) is Verdict.REJECT
    assert of_batch(" or ".join([search] * 24), 50_000) is Verdict.REJECT
    assert of_batch(" or ".join([search] * 24), 500_000) is Verdict.ACCEPT


class Unhurried:
    """A pace without rests."""

    def step(self) -> None:
        pass


def test_a_go_opens_a_bounded_number_of_bytes() -> None:
    """Hundreds of batches of some bytes, each a megabyte when decompressed, were opened in one go."""
    singles = [(pb.SingleMessageMetadata(), bytes(100_000)), (pb.SingleMessageMetadata(), b"y")]
    plain = build_batch(singles)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=2)
    metadata.compression = pb.ZLIB
    metadata.uncompressed_size = len(plain)
    entry = build_entry(metadata, compress(pb.ZLIB, plain))
    judge = Judge(
        FilterRules(names=("expression",)), "t", "s", lambda: {PROPERTY: "key == 'k'"}, ManualClock()
    )
    left = [entry] * 7 + [b"damaged"]
    assert judge.verdicts(left, [2] * len(left)) == []
    sizes = []
    while left:
        foreseen = judge.foresee(left, [2] * len(left), Unhurried())
        assert len(judge.verdicts(left, [2] * len(left), foreseen)) == len(foreseen)
        sizes.append(len(foreseen))
        left = left[len(foreseen) :]
    assert sizes == [2, 2, 2, 2]


def test_texts_are_not_added_up() -> None:
    """A few hundred sums of a text of a megabyte would fill the memory."""
    text = '(properties.colour + properties.colour) == "redred"'
    assert judged(text) is Verdict.REJECT


def test_a_message_with_huge_metadata_is_sent_without_a_look() -> None:
    large = [pb.KeyValue(key="large", value="x" * (64 << 10))]
    assert judged('properties.colour == "blue"', properties=large) is Verdict.ACCEPT
