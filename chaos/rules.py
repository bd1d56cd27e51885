"""What must hold of a history. Pure: events in, violations out. Each rule has tests that forge its violation.

A rule says what it found in one line that names topic, message and place. The rules are those of the Jepsen
project's checkers for logs, by the same names where there are some, and Pulsar's promises.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from chaos.history import TopicHistory, Value

DEDUPLICATED: Final = "dedup"
KEYED: Final = "keyed"
ORDERED: Final = ("plain", "dedup", "batch")
"""Names of topics begin with one of these words. Subscriptions of the ordered ones are of the type Failover,
of the keyed ones Key_Shared; those named `shared` are Shared everywhere."""
SHARED: Final = "shared"
_LOG_S: Final = 0.05
"""How exact the times of a client's log are."""
TOLD_MAX: Final = 5
"""Violations of a rule and topic that are told in full; the others are counted."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    rule: str
    topic: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.topic}: {self.what}"


def lost(topic: TopicHistory) -> Iterator[str]:
    """An acknowledged message that a reader does not find in the end."""
    if not topic.is_read:
        if any(each.acked_s is not None for each in topic.sent.values()):
            yield "the topic could not be read in the end"
        return
    stored = {value for _, value in topic.stored}
    for value, sent in topic.sent.items():
        if sent.acked_s is not None and value not in stored:
            yield f"{value} was acknowledged at {sent.place} and is not there"


def unstable(topic: TopicHistory) -> Iterator[str]:
    """What a reader finds is not the same after all processes were killed and started again."""
    if not topic.is_restarted:
        return
    if not topic.is_read_again:
        yield "the topic could not be read again"
        return
    before, after = Counter(topic.stored), Counter(topic.again)
    for place, value in before - after:
        yield f"{value} was at {place}, and is not any more"
    for place, value in after - before:
        yield f"{value} is at {place}, and was not"
    if before == after and topic.stored != topic.again:
        yield "the order of messages is another one"


def unexpected(topic: TopicHistory) -> Iterator[str]:
    """A message that no producer sent, or with other bytes."""
    yield from topic.strange
    seen = [(place, value) for each in topic.received.values() for _, _, value, place in each]
    for place, value in dict.fromkeys((*topic.stored, *seen)):
        if value not in topic.sent:
            yield f"{value} at {place} was never sent"


def refused_and_there(topic: TopicHistory) -> Iterator[str]:
    """A message whose producer was told for certain that it is not stored."""
    for place, value in topic.stored:
        sent = topic.sent.get(value)
        if sent and sent.refused.startswith("certain"):
            yield f"{value} was refused ({sent.refused}) and is at {place}"


def inconsistent(topic: TopicHistory) -> Iterator[str]:
    """Two messages at one place: by receipts, consumers and the reader in the end."""
    at: dict[object, Value] = {}
    told = [(sent.place, value) for value, sent in topic.sent.items() if sent.place and sent.place.entry >= 0]
    seen = [(place, value) for each in topic.received.values() for _, _, value, place in each]
    for place, value in (*told, *topic.stored, *seen):
        other = at.setdefault(place, value)
        if other != value:
            yield f"{other} and {value} are at {place}"


def receipts(topic: TopicHistory) -> Iterator[str]:
    """A receipt names a place where the message is not."""
    if not topic.is_read:
        return
    there = set(topic.stored)
    for value, sent in topic.sent.items():
        place = sent.place
        # A duplicate is acknowledged without a place (-1), as by Pulsar.
        if sent.acked_s is not None and place and place.entry >= 0 and (place, value) not in there:
            yield f"{value} was acknowledged at {place}, where it is not"


def doubled(topic: TopicHistory) -> Iterator[str]:
    """A message that is there twice: never with deduplication; else only when its producer sent it again,
    that is when it lost its broker before it had the receipt."""
    for value, times in Counter(value for _, value in topic.stored).items():
        if times == 1 or value not in topic.sent:
            continue
        if topic.name.startswith(DEDUPLICATED):
            yield f"{value} is there {times} times, with deduplication"
        elif times > 1 + _attached_again(topic, value):
            most = 1 + _attached_again(topic, value)
            yield f"{value} is there {times} times, and was sent {most} times at most"


def _attached_again(topic: TopicHistory, value: Value) -> int:
    """How often its producer was attached while a message had no receipt."""
    sent = topic.sent[value]
    made_s = topic.made_s.get(value.producer, [])
    until_s = float("inf") if sent.acked_s is None else sent.acked_s
    return bisect_right(made_s, until_s + _LOG_S) - bisect_right(made_s, sent.at_s - _LOG_S)


def order(topic: TopicHistory) -> Iterator[str]:
    """First copies of one producer's messages are not in the order in which it sent them; key by key where
    the client batches by key."""
    last: dict[object, int] = {}
    seen: set[Value] = set()
    for place, value in topic.stored:
        if value in seen:
            continue
        seen.add(value)
        lane = _lane(topic, value)
        before = last.get(lane, -1)
        if value.number < before:
            yield f"{value} at {place} is behind number {before}"
        last[lane] = max(before, value.number)


def _lane(topic: TopicHistory, value: Value) -> object:
    return (value.producer, value.key) if topic.name.startswith(KEYED) else value.producer


def real_time(topic: TopicHistory) -> Iterator[str]:
    """A message that was sent after another one had its receipt lies before it: two brokers, or a broker that
    others take for gone, had both acknowledged."""
    acked = [
        (sent.place, sent.at_s, sent.acked_s, value)
        for value, sent in topic.sent.items()
        if sent.acked_s is not None and sent.place is not None and sent.place.entry >= 0
    ]
    acked.sort(reverse=True)
    first_s, first = float("inf"), None
    for place, at_s, acked_s, value in acked:
        if at_s > first_s:
            had = f"{first}, which had its receipt at {first_s:.3f}"
            yield f"{value}, sent at {at_s:.3f}, is at {place}, before {had}"
        if acked_s < first_s:
            first_s, first = acked_s, value


def zombie(topic: TopicHistory) -> Iterator[str]:
    """A ledger is acknowledged in after a later one was: a former owner's, which its successor must have
    closed."""
    newest, since_s = -1, 0.0
    for value, sent in sorted(topic.sent.items(), key=lambda each: each[1].acked_s or 0.0):
        if sent.acked_s is None or sent.place is None or sent.place.entry < 0:
            continue
        if sent.place.ledger < newest and sent.at_s > since_s:
            where = f"in ledger {sent.place.ledger}, after ledger {newest} was in use"
            yield f"{value} was sent and acknowledged {where}"
        if sent.place.ledger > newest:
            newest, since_s = sent.place.ledger, sent.acked_s


def owners(topic: TopicHistory) -> Iterator[str]:
    """Several brokers serve the topic, when everything has healed."""
    if len(topic.served) > 1:
        yield f"{', '.join(sorted(topic.served))} serve it"


def unseen(topic: TopicHistory) -> Iterator[str]:
    """A stored message that a subscription did not get until the end: its cursor is ahead of what it
    delivered, or it is stuck."""
    first = {value: place for place, value in reversed(topic.stored)}
    for subscription, got in topic.received.items():
        had = {value for _, _, value, _ in got}
        missing = [(place, value) for value, place in first.items() if value not in had]
        if not missing:
            continue
        at = topic.cursors.get(subscription, {})
        why = "its cursor is ahead of it" if at.get("backlog") == 0 else f"its cursor: {at or 'unknown'}"
        place, value = min(missing)
        yield f"{subscription} never got {len(missing)} messages, first {value} at {place}; {why}"


def cursor_ahead(topic: TopicHistory) -> Iterator[str]:
    """A cursor stands behind the last entry of the topic."""
    for subscription, at in topic.cursors.items():
        marked, last = at.get("marked"), at.get("last")
        if isinstance(marked, list) and isinstance(last, list) and marked > last:
            yield f"{subscription} has acknowledged up to {marked}; the last entry is {last}"


def skipped(topic: TopicHistory) -> Iterator[str]:
    """A subscription got a message for the first time after a later one of its producer or key (nonmonotonic
    poll)."""
    if not topic.name.startswith((*ORDERED, KEYED)):
        return
    for subscription, got in topic.received.items():
        if subscription == SHARED:
            continue
        last: dict[object, int] = defaultdict(lambda: -1)
        seen: set[Value] = set()
        for _, consumer, value, place in got:
            if value in seen:
                continue
            seen.add(value)
            lane = _lane(topic, value)
            if value.number < last[lane]:
                yield f"{subscription}: {consumer} first got {value} at {place} after number {last[lane]}"
            last[lane] = max(last[lane], value.number)


RULES: Final[dict[str, Callable[[TopicHistory], Iterator[str]]]] = {
    "lost": lost,
    "unstable": unstable,
    "unexpected": unexpected,
    "refused and there": refused_and_there,
    "inconsistent offsets": inconsistent,
    "wrong receipt": receipts,
    "doubled": doubled,
    "order": order,
    "real time": real_time,
    "zombie writer": zombie,
    "two owners": owners,
    "unseen": unseen,
    "cursor ahead": cursor_ahead,
    "order of a subscription": skipped,
}


def violations(topics: Iterable[TopicHistory]) -> list[Violation]:
    """Everything that is wrong; of each rule and topic the first few, and how many more."""
    found = []
    for topic in topics:
        for rule, check in RULES.items():
            told = list(check(topic))
            found += [Violation(rule, topic.name, each) for each in told[:TOLD_MAX]]
            if len(told) > TOLD_MAX:
                found.append(Violation(rule, topic.name, f"and {len(told) - TOLD_MAX} more"))
    return found
