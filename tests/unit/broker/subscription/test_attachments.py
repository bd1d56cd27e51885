"""The consumers of a subscription, without their driver (`transcripts/attach-*.txt`).

    > shared a
    < a is served by a new shared dispatcher

The tests have no event loop, no log and no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.base.ids import ConsumerId, LedgerId, Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import RefusedError
from magnetar.broker.subscription.any_subscription import AttachedConsumer, KeySharedPolicy, SubscriptionType
from magnetar.broker.subscription.attachments import Attachments
from magnetar.broker.subscription.read_place import ReadPlace
from support.transcripts import replayed

FILES = sorted((Path(__file__).parent / "transcripts").glob("attach-*.txt"))
TYPES = {each.name.lower(): each for each in SubscriptionType}


class Log:
    """A log and a cursor that know nothing but their positions; and the delayed entries."""

    mark_delete = Position(LedgerId(1), -1)
    count = 0
    loading = False

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def next_position(self, position: Position) -> Position:
        return Position(position.ledger_id, position.entry_id + 1)

    def clear(self) -> None:
        self._said.append("delayed entries will be read again")

    def pause(self) -> None:
        self._said.append("delayed entries wait")


class Connection:
    """The connection of a consumer."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        self._said.append(f"{consumer.name} is told to subscribe again")


class Stage:
    """The consumers of one subscription."""

    def __init__(self) -> None:
        self.said: list[str] = []
        log = cast("Any", Log(self.said))
        self.place = ReadPlace(log, log, log)
        self.attached = Attachments(self.place, log, -1, tell_active=self._tell)
        self.known: dict[str, AttachedConsumer] = {}

    def _tell(self, consumer: Consumer, is_active: bool) -> None:
        self.said.append(f"{consumer.name} is {'active' if is_active else 'passive'}")

    def say(self, line: str) -> list[str]:
        word, *rest = line.split()
        if word in TYPES:
            self._attach(TYPES[word], *rest)
        else:
            HAPPENS[word](self, *rest)
        self.attached.check()
        said = self.said[:]
        self.said.clear()
        return said

    def _attach(self, type_: SubscriptionType, name: str, *ranges: str) -> None:
        consumer = AttachedConsumer(
            consumer_id=ConsumerId(1),
            name=name,
            outlet=cast("Any", None),
            connection=cast("Any", Connection(self.said)),
            encoder=cast("Any", None),
            subscription=cast("Any", None),
            properties={},
            hash_ranges=tuple((int(each), int(each)) for each in ranges if each != "sticky"),
        )
        before = self.place.dispatcher
        policy = KeySharedPolicy(sticky=bool(ranges))
        try:
            dispatcher = self.attached.attach(consumer, type_, policy)
        except RefusedError as error:
            self.said.append(f"refused: {error}")
            return
        self.known[name] = consumer
        newness = "the same" if dispatcher is before else "a new"
        self.said.append(f"{name} is served by {newness} {type(dispatcher).__name__}")

    def on_leaves(self, name: str) -> None:
        self.attached.remove(self.known[name])

    def on_all_leave(self) -> None:
        self.attached.remove_all()

    def on_state(self) -> None:
        attached = self.attached
        names = [each.name for each in attached.consumers]
        sole = "" if attached.sole is None else f", {attached.sole.name} alone is served"
        state = f"{attached.state.value}, {attached.type.name}"
        self.said.append(f"{state}: {' '.join(names) or 'nobody'}{sole}")


HAPPENS: dict[str, Callable[..., None]] = {
    "leaves": Stage.on_leaves,
    "all-leave": Stage.on_all_leave,
    "state": Stage.on_state,
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_as_the_transcript_says(file: Path) -> None:
    lines = replayed(file, Stage().say)
    assert lines == file.read_text(encoding="utf-8").splitlines()
