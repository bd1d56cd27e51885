"""What clients of transactions asked for and were told, and what must hold of it.

A unit is one message of an entry: (position, index in its batch). Times are of the world, microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.ids import Position
from magnetar.broker.transactions.ids import TxnId

Unit = tuple[Position, int]
NEVER: Final = 1 << 62


@dataclass
class Sent:
    """A message."""

    topic: str
    body: str
    key: str = ""
    fate: str = "unknown"
    """stored, refused (it takes no effect), or unknown."""
    position: Position | None = None
    line: object = None
    """The connection that it went over."""


@dataclass
class Acked:
    """An acknowledgement."""

    subscription: str
    units: frozenset[Unit]
    upto: Position | None = None
    """Every unit up to and including it."""
    rests: set[Position] = field(default_factory=set)
    """Batches that it names without saying which messages: those that nothing has acknowledged yet."""
    fate: str = "unknown"
    asked_us: int = 0
    told_us: int = NEVER

    def covers(self, unit: Unit) -> bool:
        return unit in self.units or (self.upto is not None and unit[0] <= self.upto)


@dataclass
class Attempt:
    """One transaction as its client knows it; an acknowledgement without any is one that has committed."""

    name: str
    ttl_us: int
    begun_us: int
    """When it was asked for."""
    txn: TxnId | None = None
    sends: list[Sent] = field(default_factory=list)
    acks: list[Acked] = field(default_factory=list)
    commit_us: int = NEVER
    """When a commit was first asked for."""
    abort_us: int = NEVER
    committed: bool | None = None
    """As the broker says; None: it has not said yet."""
    told_us: int = NEVER
    troubled: bool = False
    """Something of it failed in a way that ends a transaction."""

    @property
    def ending(self) -> bool:
        return min(self.commit_us, self.abort_us) < NEVER


@dataclass
class Seek:
    """A subscription was moved to its first message."""

    subscription: str
    asked_us: int
    told_us: int = NEVER


@dataclass
class Reading:
    """What one reader got from the first message of a topic on."""

    topic: str
    name: str
    seen: list[tuple[Position, str]] = field(default_factory=list)


class History:
    """What happened in one story."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.attempts: list[Attempt] = []
        self.plain: list[Sent] = []
        self.seeks: list[Seek] = []
        self.readings: list[Reading] = []
        self.wrong: list[str] = []
        self.failures = False
        """Whether storage failed at some time."""

    # -- at any time -------------------------------------------------------------------------------

    def ended(self, attempt: Attempt, *, committed: bool) -> None:
        """The broker says how it ended (T5, T6)."""
        if attempt.committed is None:
            attempt.committed, attempt.told_us = committed, self.now_us()
            self._check_end(attempt)
        elif attempt.committed is not committed:
            words = {True: "committed", False: "aborted"}
            self.wrong.append(f"{attempt.name} was {words[attempt.committed]} and is {words[committed]}")

    def _check_end(self, attempt: Attempt) -> None:
        now_us = self.now_us()
        if attempt.committed and attempt.commit_us == NEVER:
            self.wrong.append(f"{attempt.name} is committed, and no client asked for it")
        if attempt.committed and attempt.commit_us > attempt.begun_us + attempt.ttl_us + 30_000_000:
            self.wrong.append(f"{attempt.name} is committed long after its time")
        if attempt.committed or attempt.abort_us < NEVER or attempt.troubled or self.failures:
            return
        sought = any(seek.subscription == acked.subscription for seek in self.seeks for acked in attempt.acks)
        well = all(sent.fate not in ("unknown", "failed") for sent in attempt.sends)
        if well and not sought and now_us < attempt.begun_us + attempt.ttl_us:
            self.wrong.append(f"{attempt.name} was aborted, and no client asked for it")

    def delivered(self, subscription: str, unit: Unit) -> None:
        """A consumer of a durable subscription got it: it is not held by a transaction, nor gone (T4)."""
        now_us = self.now_us()
        for attempt in self.attempts:
            if attempt.committed is False or attempt.troubled:
                continue
            for acked in attempt.acks:
                if acked.subscription != subscription or acked.fate != "stored" or not acked.covers(unit):
                    continue
                if any(
                    seek.subscription == subscription and seek.told_us > acked.asked_us for seek in self.seeks
                ):
                    continue
                over = attempt.ending or now_us >= attempt.begun_us + attempt.ttl_us - 1_000_000
                if attempt.committed or not over:
                    self.wrong.append(f"{unit} of {subscription} came, and {attempt.name} acknowledged it")

    # -- at the end --------------------------------------------------------------------------------

    def check_topic(self, topic: str, final: list[tuple[Position, str]]) -> Iterator[str]:
        """`final`: what a reader gets when everything is over (T1, T2, T3, T7, T9, T20)."""
        counts = Counter(body for _, body in final)
        places = {body: position for position, body in final}
        if [position for position, _ in final] != sorted(position for position, _ in final):
            yield f"{topic} is out of order"
        known = set()
        for sent, committed in self.sent(topic):
            known.add(sent.body)
            count = counts[sent.body]
            if count > 1:
                yield f"{sent.body} is {count} times in {topic}"
            if count and (sent.fate == "refused" or not committed):
                yield f"{sent.body} is in {topic}, and was {'refused' if committed else 'aborted'}"
            if committed and sent.fate == "stored":
                if not count:
                    yield f"{sent.body} has a receipt and is not in {topic}"
                elif places[sent.body] != sent.position:
                    yield f"{sent.body} is at {places[sent.body]}, and not at {sent.position}"
        yield from (f"{body} is in {topic}, and no client sent it" for body in counts if body not in known)
        for reading in self.readings:
            if reading.topic == topic and reading.seen != final[: len(reading.seen)]:
                at = next(i for i, each in enumerate(reading.seen) if [each] != final[i : i + 1])
                yield f"{reading.name} got {reading.seen[at]} as number {at}, now it is {final[at : at + 1]}"

    def sent(self, topic: str) -> Iterator[tuple[Sent, bool]]:
        yield from ((sent, True) for sent in self.plain if sent.topic == topic)
        for attempt in self.attempts:
            yield from ((sent, bool(attempt.committed)) for sent in attempt.sends if sent.topic == topic)

    def check_acks(self, subscription: str, units: Iterable[Unit], left: Iterable[Unit]) -> Iterator[str]:
        """`units`: all of the topic; `left`: those that are not acknowledged (T4, T10, T11)."""
        seeks = [seek for seek in self.seeks if seek.subscription == subscription]
        last_seek = max((seek.asked_us for seek in seeks if seek.told_us < NEVER), default=0)
        remaining = Counter(left)
        for unit in units:
            holders = [
                (attempt, acked)
                for attempt in self.attempts
                if attempt.committed
                for acked in attempt.acks
                if acked.subscription == subscription and acked.fate != "refused" and acked.covers(unit)
            ]
            count = remaining[unit]
            if count > 1:
                yield f"{unit} of {subscription} is {count} times at the end"
            if count and any(
                acked.fate == "stored" and all(seek.told_us < attempt.commit_us for seek in seeks)
                for attempt, acked in holders
            ):
                yield f"{unit} of {subscription} is there, and {holders[0][0].name} acknowledged it"
            if not count and not holders:
                yield f"{unit} of {subscription} is gone, and no client acknowledged it"
            elif not count and self._ended_before(last_seek, subscription, unit):
                yield f"{unit} of {subscription} is gone, and was acknowledged before the last seek only"
            sure = [
                (acked.told_us, unit[0] in acked.rests, attempt.name)
                for attempt, acked in holders
                if attempt.txn is not None and acked.fate == "stored" and acked.upto is None
            ]
            # The rest of a batch may be asked for after a part of it, and nothing after that.
            (*others, (_, is_rest, last)) = sorted(sure) or [(0, True, "")]
            if not seeks and others and (len(others) > 1 or others[0][1] or not is_rest):
                yield f"{unit} of {subscription} was acknowledged by {others[0][2]} and by {last}"

    def _ended_before(self, seek_us: int, subscription: str, unit: Unit) -> bool:
        """Whether it was told of all that acknowledged it how they ended, before a seek was asked for."""
        return all(
            attempt.committed is False or attempt.told_us < seek_us
            for attempt in self.attempts
            for acked in attempt.acks
            if acked.subscription == subscription and acked.fate != "refused" and acked.covers(unit)
        )
