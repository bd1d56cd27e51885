"""Figures and the page of a run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from chaos.figures import by_second, pauses, percentile, told
from chaos.history import Event, Id, Value, by_topic
from chaos.outcome import Outcome
from chaos.report import page, summary, timeline
from chaos.rules import Violation, violations
from chaos.schedule import Fault

KILL = Fault(2.0, "kill", ("b1",), 3.0)
CUT = Fault(4.0, "one way", ("k1", "m1"), 2.0)


def found() -> list[Event]:
    rows = []
    for number in range(10):
        value, at = Value("c1", number), Id(1, number, -1)
        rows.append(Event(100.0 + number, "sent", "plain-1", "c1", value))
        rows.append(Event(100.25 + number, "acked", "plain-1", "c1", value, at))
        rows.append(Event(100.5 + number, "stored", "plain-1", "reader", value, at))
    rows.append(Event(103.0, "error", "plain-1", "failover/c1", note="receiving: <broken>"))
    rows.append(Event(120.0, "read", "plain-1", "reader"))
    return sorted(rows, key=lambda each: each.at_s)


def outcome(*wrong: Violation) -> Outcome:
    topics = by_topic(found())
    done = [(102.0, 105.0, KILL), (104.0, 106.0, CUT)]
    return Outcome(100.0, found(), topics, [*wrong, *violations(topics.values())], done, {"b1": 2})


def test_figures_by_second() -> None:
    seconds = by_second(found(), 100.0)
    assert [each.acked for each in seconds[:10]] == [1] * 10
    assert seconds[0].latencies_s == [0.25]
    assert [each.errors for each in seconds[:5]] == [0, 0, 0, 1, 0]
    assert pauses(found()) == {"plain-1": 1.0}
    assert told(found()) == {"error: receiving: <broken>": 1}


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([], 0.5) == 0


def test_the_summary_tells_what_happened() -> None:
    lines = summary(outcome())
    assert lines[0] == "10 sent, 10 acknowledged, 10 stored, 0 of them more than once"
    assert lines[1] == "latency p50 250 ms, p99 0.25 s, longest 0.25 s"
    assert lines[-1].endswith("all hold")
    lines = summary(outcome(Violation("lost", "plain-1", "it is not there")))
    assert lines[-2:] == ["VIOLATION lost: plain-1: it is not there", lines[-1]]
    assert lines[-1].endswith("BROKEN")


def test_the_picture_is_well_formed_and_has_a_bar_for_each_target() -> None:
    picture = ElementTree.fromstring(timeline(outcome()))
    titles = [each.text for each in picture.iter("title")]
    assert titles == [str(KILL), str(CUT), str(CUT)]
    assert len(list(picture.iter("polyline"))) == 3


def test_the_page_needs_nothing_else_and_escapes_what_it_tells() -> None:
    text = page("seed 1", outcome(Violation("lost", "plain-1", "<script>")))
    assert "<script>" not in text
    assert "&lt;broken&gt;" in text
    assert not re.search(r"(src|href)=|url\(", text)
