"""Each rule of the chaos rig notices its violation in a forged history, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chaos.history import AGAIN, Event, Id, Value, by_topic
from chaos.rules import RULES, TOLD_MAX, violations

COUNT = 20


def place(number: int, ledger: int = 1) -> Id:
    return Id(ledger, number, -1)


def history(topic: str = "plain-1", subscription: str = "failover") -> list[Event]:
    """Two producers send by turns, each message is acknowledged, received and read; one a second."""
    found = [Event(0.0, "subscribed", topic, subscription)]
    found += [Event(0.0, "made", topic, name) for name in ("c1", "c2")]
    for number in range(COUNT):
        value, at = Value(f"c{number % 2 + 1}", number // 2), place(number)
        actor = f"{subscription}/c1"
        found.append(Event(number, "sent", topic, value.producer, value))
        found.append(Event(number + 0.5, "acked", topic, value.producer, value, at))
        found.append(Event(number + 0.6, "received", topic, actor, value, at))
        found.append(Event(100 + number, "stored", topic, "reader", value, at))
    cursor = f'{{"marked": [1, {COUNT - 1}], "last": [1, {COUNT - 1}], "backlog": 0}}'
    found.append(Event(99, "cursor", topic, subscription, note=cursor))
    found.append(Event(99, "served", topic, "b1"))
    return [*found, Event(200, "read", topic, "reader")]


def read_again(found: list[Event]) -> list[Event]:
    """Everything is killed, and a second reader finds the same."""
    second = [each._replace(at_s=each.at_s + 400, actor=AGAIN) for each in found if each.actor == "reader"]
    return [*found, Event(250, "restarted", found[0].topic, "rig"), *second]


def rules_of(found: list[Event]) -> set[str]:
    return {each.rule for each in violations(by_topic(sorted(found, key=lambda each: each.at_s)).values())}


def without(kind: str, number: int) -> list[Event]:
    """No event of this kind of the message at this place of the order."""
    value = Value(f"c{number % 2 + 1}", number // 2)
    return [each for each in history() if (each.kind, each.value) != (kind, value)]


def changed(kind: str, number: int, change: Callable[[Event], Event], topic: str = "plain-1") -> list[Event]:
    value = Value(f"c{number % 2 + 1}", number // 2)
    return [change(each) if (each.kind, each.value) == (kind, value) else each for each in history(topic)]


def twice(topic: str, *, attached_s: float | None = None, sent_until_s: float = 0.5) -> list[Event]:
    """Message 4 lies at two places."""
    found = changed("acked", 4, lambda each: replace_at(each, 4 + sent_until_s), topic)
    found.append(Event(150, "stored", topic, "reader", Value("c1", 2), place(COUNT)))
    if attached_s is not None:
        found.append(Event(attached_s, "made", topic, "c1"))
    return found


def replace_at(event: Event, at_s: float) -> Event:
    return event._replace(at_s=at_s)


@pytest.mark.parametrize("topic", ["plain-1", "keyed-1", "dedup-1"])
def test_a_history_without_faults_breaks_no_rule(topic: str) -> None:
    assert rules_of(history(topic)) == set()
    assert rules_of(read_again(history(topic))) == set()


def test_a_message_without_an_answer_may_be_there_or_not() -> None:
    open_one = Event(50, "sent", "plain-1", "c1", Value("c1", 77))
    assert rules_of([*history(), open_one]) == set()
    there = [
        Event(170, "stored", "plain-1", "reader", Value("c1", 77), place(30)),
        Event(51, "received", "plain-1", "failover/c1", Value("c1", 77), place(30)),
    ]
    assert rules_of([*history(), open_one, *there]) == set()


FORGED: dict[str, list[Event]] = {
    "lost": without("stored", 7),
    "unstable": [
        each for each in read_again(history()) if (each.actor, each.value) != (AGAIN, Value("c1", 2))
    ],
    "unexpected": [*history(), Event(150, "stored", "plain-1", "reader", Value("c9", 1), place(70))],
    "inconsistent offsets": changed("received", 7, lambda each: each._replace(place=place(8))),
    "wrong receipt": changed("acked", 7, lambda each: each._replace(place=place(70))),
    "doubled": twice("plain-1"),
    "order": changed("stored", 7, lambda each: each._replace(at_s=150)),
    "real time": changed("acked", 7, lambda each: each._replace(place=place(2, ledger=0))),
    "zombie writer": changed("acked", 7, lambda each: each._replace(place=place(2, ledger=0))),
    "two owners": [*history(), Event(99, "served", "plain-1", "b2")],
    "unseen": without("received", 7),
    "cursor ahead": [
        each._replace(note='{"marked": [2, 0], "last": [1, 19], "backlog": 0}')
        if each.kind == "cursor"
        else each
        for each in history()
    ],
    "order of a subscription": changed("received", 7, lambda each: each._replace(at_s=15)),
}


@pytest.mark.parametrize("rule", sorted(FORGED))
def test_the_rule_notices_a_forged_history(rule: str) -> None:
    assert rule in rules_of(FORGED[rule])


def test_a_message_that_was_refused_for_certain_must_not_be_there() -> None:
    found = changed("acked", 7, lambda each: each._replace(kind="refused", note="certain: too large"))
    assert rules_of(found) == {"refused and there"}


def test_every_rule_has_a_forged_history() -> None:
    assert {*FORGED, "refused and there"} == set(RULES)


def test_what_cannot_be_read_again_is_unstable() -> None:
    assert rules_of([each for each in read_again(history()) if each.actor != AGAIN]) == {"unstable"}


def test_what_no_reader_read_is_no_proof() -> None:
    """A reader that failed must not make a run look well."""
    found = [each for each in history() if each.kind not in ("stored", "read")]
    assert "lost" in rules_of(found)


def test_bytes_that_are_not_a_message_are_noticed() -> None:
    assert rules_of([*history(), Event(60, "strange", "plain-1", "failover/c1", note="other bytes")]) == {
        "unexpected"
    }


def test_a_second_copy_is_allowed_when_the_producer_sent_it_again() -> None:
    """It was attached again before it had the receipt; with deduplication that does not excuse it."""
    assert rules_of(twice("plain-1", attached_s=5.0, sent_until_s=3.0)) == set()
    assert rules_of(twice("dedup-1", attached_s=5.0, sent_until_s=3.0)) == {"doubled"}
    assert rules_of(twice("plain-1", attached_s=9.0, sent_until_s=3.0)) == {"doubled"}


def test_a_duplicate_may_have_a_receipt_without_a_place() -> None:
    found = changed("acked", 7, lambda each: each._replace(place=Id(-1, -1, -1)), "dedup-1")
    assert rules_of(found) == set()


def test_keys_are_in_order_each_by_itself() -> None:
    """Where the client batches by key, other keys may pass by."""
    moved = changed("stored", 7, lambda each: each._replace(at_s=150), "keyed-1")
    assert rules_of(moved) == set()


def test_of_many_violations_the_first_are_told() -> None:
    found = [each for each in history() if each.kind != "stored"]
    told = [each for each in violations(by_topic(found).values()) if each.rule == "lost"]
    assert len(told) == TOLD_MAX + 1
    assert told[-1].what == f"and {COUNT - TOLD_MAX} more"
