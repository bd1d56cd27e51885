"""What clients of transactions asked for and were told, and what must hold of it. Pure.

Inputs are numbers. A transaction takes some, writes each to both outputs and acknowledges it. So an input
that is taken twice, an output that is lost, doubled or there though its transaction was aborted, is seen by
its number. Plain messages go between them.

Each line that is wrong begins with the promise that it breaks, of the invariants of the simulator's checker
those that clients of real processes can see:

    T1   nothing of an aborted transaction, or of one that its time ended, is read
    T2   what is committed is read once, in the order of its producer
    T3   a reader that begins after the answer to a commit gets all of it, in both topics
    T4   an input is acknowledged if its outputs are there, and only then
    T5   an end that is asked for again gets the same answer
    T6   the opposite of an end is refused
    T7   a message or an acknowledgement after the end is refused
    T8   a transaction that no client ends is aborted at its time
    T9   what a reader has seen stays, at its place
    T10  of two transactions that acknowledge a message one commits at most
    T11  what an aborted transaction acknowledged comes again
    T18  what is over leaves nothing behind
    T19  plain messages beside them are stored as they are acknowledged
    T20  all of it is the same after a kill of everything
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from magnetar.base.ids import Position
from magnetar.wire.events import TxnBits


@dataclass(eq=False)
class Attempt:
    """One transaction, as its client knows it."""

    worker: int
    inputs: list[tuple[Position, int]]
    commit: bool
    """Whether its client means to commit it."""
    ttl_ms: int
    is_left: bool = False
    """No client ends it: its time does."""
    txn: TxnBits | None = None
    is_refused: bool = False
    """Something in it failed: its client aborts it."""
    is_ending: bool = False
    """A commit was asked for."""
    committed: bool | None = None
    """As the broker says; None: it has not said yet."""
    told_s: float = 0.0
    """When it said so; as Reading.began_s."""


@dataclass
class Reading:
    """What a reader got from the first message of a topic on."""

    topic: int
    """Number of the output."""
    reader: str
    sure: int = 0
    """Number of inputs that were committed for certain before it began: the first of `History.told_of`."""
    began_s: float = 0.0
    """When it began, by a clock that only runs."""
    broker: str = ""
    """URL of the broker that it read from."""
    seen: list[str] = field(default_factory=list)
    is_whole: bool = False
    """Whether it came to what was the end when it began."""


class History:
    """That of one story: `count` inputs, to the last look. Several threads write it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.attempts: list[Attempt] = []
        self.sends: dict[int, list[tuple[Attempt | None, str]]] = {}
        """By worker, in the order of its SENDs to each output: the transaction and the body."""
        self.plain: dict[tuple[int, str], str] = {}
        """By output and body: stored, refused or unknown."""
        self.readings: list[Reading] = []
        self.wrong: list[str] = []
        self.done: set[int] = set()
        """Inputs of transactions that are committed."""
        self.told_of: list[int] = []
        """The same, in the order in which clients were told."""
        self.figures: Counter[str] = Counter()
        self._lock = threading.Lock()

    def told(self, attempt: Attempt, *, committed: bool, now_s: float = 0.0) -> None:
        """The broker says how it ended."""
        with self._lock:
            if attempt.committed is not None:
                self.figures["ends asked for again"] += 1
                if attempt.committed is not committed:
                    self.wrong.append(f"T5: {_named(attempt)} ended twice, the second time otherwise")
                return
            attempt.committed, attempt.told_s = committed, now_s
            if committed and not attempt.is_ending:
                self.wrong.append(f"T1: {_named(attempt)} is committed, and no client asked for it")
            if committed:
                taken = {value for _, value in attempt.inputs}
                if both := taken & self.done:
                    self.wrong.append(f"T10: {_named(attempt)} is committed with {sorted(both)}, as another")
                self.done |= taken
                self.told_of += sorted(taken)
            elif attempt.is_ending and not attempt.is_left:
                # What is wrong with it the end of the story says: an input is taken again, or lost.
                self.figures["commits refused"] += 1

    def counts(self) -> Counter[str]:
        """How many ended how."""
        names = {True: "committed", False: "aborted", None: "unknown"}
        return Counter(names[each.committed] for each in self.attempts)


def _named(attempt: Attempt) -> str:
    most, least = attempt.txn or (-1, -1)
    return f"transaction ({most}, {least}) of worker {attempt.worker}"


def faults(history: History, outputs: Sequence[Sequence[str]]) -> Iterator[str]:
    """What is wrong at the end. `outputs`: all that a reader gets of each."""
    yield from history.wrong
    for attempt in history.attempts:
        if attempt.committed is None:
            yield f"T5: no answer says how {_named(attempt)} ended"
    if lost := sorted(set(range(history.count)) - history.done):
        yield f"T11: {len(lost)} inputs are in no transaction that is committed, from {lost[0]} on"
    wanted = set(map(str, history.done))
    for number, found in enumerate(outputs):
        yield from _topic(history, number, found, wanted)
    told = {str(v): each.told_s for each in history.attempts if each.committed for _, v in each.inputs}
    for reading in history.readings:
        sure = set(map(str, history.told_of[: reading.sure]))
        yield from _reading(reading, outputs[reading.topic], sure, told)


def _topic(history: History, number: int, found: Sequence[str], wanted: set[str]) -> Iterator[str]:
    counts = Counter(found)
    plain = {body: fate for (topic, body), fate in history.plain.items() if topic == number}
    for body in [body for body, count in counts.items() if count > 1][:5]:
        yield f"T2: {body} is {counts[body]} times in output {number}"
    if missing := sorted(wanted - counts.keys()):
        yield f"T3: {len(missing)} of committed transactions are not in output {number}: {missing[:5]}"
    if strange := sorted(counts.keys() - wanted - plain.keys()):
        yield f"T1: {len(strange)} in output {number} are of no committed transaction: {strange[:5]}"
    for body, fate in plain.items():
        if fate == "stored" and not counts[body]:
            yield f"T19: {body} has a receipt and is not in output {number}"
        if fate == "refused" and counts[body]:
            yield f"T7: {body} was refused and is in output {number}"
    places = {body: place for place, body in enumerate(found)}
    for worker, sends in history.sends.items():
        sent = [
            body
            for attempt, body in sends
            if (plain.get(body) == "stored" if attempt is None else attempt.committed) and body in places
        ]
        there = [places[body] for body in sent]
        if there != sorted(there):
            at = next(at for at in range(1, len(there)) if there[at] < there[at - 1])
            yield f"T2: output {number} has {sent[at]} before {sent[at - 1]} of worker {worker}"


def _reading(
    reading: Reading, final: Sequence[str], sure: set[str], told: Mapping[str, float]
) -> Iterator[str]:
    if reading.seen != list(final[: len(reading.seen)]):
        places = range(len(reading.seen))
        at = next(at for at in places if reading.seen[at : at + 1] != list(final[at : at + 1]))
        now = final[at] if at < len(final) else "nothing"
        yield f"T9: {reading.reader} saw {reading.seen[at]} at {at} of {reading.topic}, now it is {now}"
    if reading.is_whole and (missing := sorted(sure - set(reading.seen))):
        ages = ", ".join(f"{body} of {reading.began_s - told[body]:.2f} s before" for body in missing[:5])
        place = f"output {reading.topic} from {reading.broker} at {reading.began_s:.2f}"
        yield f"T3: {reading.reader}, {place}, lacks {len(missing)} that were committed: {ages}"


def left_open(history: History, listed: Iterable[str]) -> list[str]:
    """Those open transactions, of which a broker lists the names, whose clients were told of an end. One that
    no client has heard of is open until its time is over."""
    ended = {f"({each.txn[0]},{each.txn[1]})" for each in history.attempts if each.txn is not None}
    return sorted(ended.intersection(listed))


def same_again(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What topics have, before and after everything was killed."""
    for name, seen in before.items():
        if list(after.get(name, ())) != list(seen):
            yield f"T20: {name} had {len(seen)} messages, and has {len(after.get(name, ()))} after the kill"
