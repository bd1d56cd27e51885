"""Scenario files: the ones that ship load, wrong ones say what is wrong."""

from __future__ import annotations

import pytest
from bench.report import COLUMNS
from bench.scenario import (
    KINDS,
    BadScenarioError,
    LatencyLoad,
    PublishLoad,
    choose,
    load_all,
    parse,
)

GOOD = """
question = "What does it cost?"
kind = "publish"
[[case]]
name = "small"
payload_bytes = 100
producers = 4
[case.target]
messages_per_s = 150000
"""


def test_a_scenario_becomes_typed_cases() -> None:
    scenario = parse("publish-100b", GOOD)
    assert scenario.question == "What does it cost?"
    (case,) = scenario.cases
    assert case.load == PublishLoad(payload_bytes=100, producers=4)
    assert case.target == {"messages_per_s": 150_000.0}


def test_every_scenario_that_ships_loads_and_asks_one_question() -> None:
    scenarios = load_all()
    assert {s.kind for s in scenarios} == set(KINDS)
    assert len({s.question for s in scenarios}) == len(scenarios)
    by_name = {s.name: s for s in scenarios}
    assert by_name["latency-10k"].cases[0].load == LatencyLoad(rate_per_s=10_000)
    assert [s.order for s in scenarios] == sorted(s.order for s in scenarios)


def test_targets_name_metrics_that_the_table_shows() -> None:
    for scenario in load_all():
        if scenario.kind != "module":
            for case in scenario.cases:
                assert case.target.keys() <= COLUMNS[scenario.kind].keys(), scenario.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = ", "Invalid value"),
        (GOOD.replace("What does it cost?", "It costs."), "question mark"),
        (GOOD.replace('"publish"', '"juggle"'), "kind is 'juggle'"),
        (GOOD.replace("payload_bytes = 100", ""), "missing keys ['payload_bytes']"),
        (GOOD.replace("producers", "producer"), "unknown keys ['producer']"),
        (GOOD.replace("producers = 4", "producers = '4'"), "producers must be of type int"),
        (GOOD.replace("producers = 4", "producers = true"), "producers must be of type int"),
        (GOOD.replace('name = "small"', ""), "has no name"),
        (GOOD.replace("[[case]]", "[[row]]"), "unknown keys ['row']"),
        (GOOD + '[[case]]\nname = "small"\npayload_bytes = 1\n', "two cases have one name"),
        ('question = "a?"\nkind = "start"\n', "no [[case]]"),
        ('question = "a?"\nkind = "start"\n[[case]]\nname = "x"\ndata = "old"\n', 'data is "old"'),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(BadScenarioError) as caught:
        parse("some", text)
    assert str(caught.value).startswith("some")
    assert message in str(caught.value)


def test_names_choose_in_their_order_and_unknown_ones_are_refused() -> None:
    scenarios = load_all()
    assert choose(scenarios, []) == scenarios
    assert [s.name for s in choose(scenarios, ["start", "catchup"])] == ["start", "catchup"]
    with pytest.raises(BadScenarioError, match="no scenario nonsense"):
        choose(scenarios, ["nonsense"])
