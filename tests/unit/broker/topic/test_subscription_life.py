"""The life of a topic's subscriptions and the fence of seeks, without their drivers
(`transcripts/subscriptions-*.txt`).

    > asks s
    < open the cursor

The tests have no event loop and no log: what these would do is a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import RefusedError
from magnetar.broker.subscription.seek_fence import SeekFence
from magnetar.broker.topic.subscription_life import Next, SubscriptionLife, check_attachable
from support.transcripts import replayed

FILES = sorted((Path(__file__).parent / "transcripts").glob("subscriptions-*.txt"))


class Listed:
    """A subscription that is nothing but listed."""

    def __init__(self, name: str, *, durable: bool) -> None:
        self.name = name
        self.durable = durable
        self.seeks = SeekFence()
        self.consumers: list[str] = []
        self.sought: list[ExitStack] = []


class Stage:
    """A topic without its driver."""

    closed = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.name = TopicName.parse("persistent://public/default/t")
        self.life: SubscriptionLife[Listed] = SubscriptionLife(self.name, self)
        self.cursors: set[str] = set()
        self.known: dict[str, Listed] = {}

    def say(self, line: str) -> list[str]:
        word, *rest = line.split()
        try:
            HAPPENS[word](self, *rest)
        except RefusedError as error:
            self.said.append(f"refused: {error}")
        self.life.check()
        for each in self.known.values():
            each.seeks.check()
        said = self.said[:]
        self.said.clear()
        return said

    # -- subscribing ------------------------------------------------------------------------------

    def on_asks(self, name: str) -> None:
        self._follow(name, self.life.next_for(name, is_opened=name in self.cursors), durable=True)

    def on_reader(self, name: str) -> None:
        self._follow(name, self.life.next_for_reader(name), durable=False)

    def _follow(self, name: str, step: Next, *, durable: bool) -> None:
        self.said.append(step.value)
        if step is Next.WAIT_FOR_SEEK:
            self.life.subscriptions[name].seeks.when_down(lambda: self.said.append("who waits asks again"))
        elif step is Next.ADD:
            self.known[name] = Listed(name, durable=durable)
            self.life.add(self.known[name])

    def on_opened(self, name: str) -> None:
        self.cursors.add(name)

    def on_attach(self, name: str) -> None:
        check_attachable(self.name, self.life.subscriptions, self.known[name])
        self.known[name].consumers.append("a consumer")

    def on_leaves(self, name: str) -> None:
        self.known[name].consumers.clear()
        if self.life.leave_reader(self.known[name]):
            self.said.append("forgotten")

    # -- what happens to it ------------------------------------------------------------------------

    def on_seek(self, name: str) -> None:
        stack = ExitStack()
        stack.enter_context(self.known[name].seeks.raised())
        self.known[name].sought.append(stack)
        self.known[name].consumers.clear()

    def on_sought(self, name: str) -> None:
        self.known[name].sought.pop().close()

    def on_drop(self, name: str) -> None:
        self.life.ending(self.known[name])

    def on_ended(self, name: str) -> None:
        self.life.deleting(self.known[name])
        self.known[name].consumers.clear()

    def on_deleted(self, name: str) -> None:
        self.cursors.discard(name)
        self.life.deleted(name)

    def on_fails(self, name: str) -> None:
        self.life.failed(self.known[name])

    def on_unload(self) -> None:
        self.closed = True
        for each in self.known.values():
            each.consumers.clear()

    def on_state(self) -> None:
        self.said.append(f"listed: {' '.join(self.life.subscriptions) or 'nothing'}")


HAPPENS: dict[str, Callable[..., None]] = {
    "asks": Stage.on_asks,
    "reader": Stage.on_reader,
    "opened": Stage.on_opened,
    "attach": Stage.on_attach,
    "leaves": Stage.on_leaves,
    "seek": Stage.on_seek,
    "sought": Stage.on_sought,
    "drop": Stage.on_drop,
    "ended": Stage.on_ended,
    "deleted": Stage.on_deleted,
    "fails": Stage.on_fails,
    "unload": Stage.on_unload,
    "state": Stage.on_state,
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_as_the_transcript_says(file: Path) -> None:
    lines = replayed(file, Stage().say)
    assert lines == file.read_text(encoding="utf-8").splitlines()


def test_nobody_waits_for_a_seek_that_is_not_under_way() -> None:
    with pytest.raises(AssertionError, match="not under way"):
        SeekFence().when_down(lambda: None)


def test_who_asks_while_a_deletion_is_under_way_breaks_the_rule() -> None:
    stage = Stage()
    for line in ("opened s", "asks s", "drop s"):
        stage.say(line)
    with pytest.raises(AssertionError, match=r"s is being deleted: ENDING \(begins\)"):
        stage.say("asks s")


def test_the_check_sees_a_consumer_behind_the_fence() -> None:
    stage = Stage()
    for line in ("opened s", "asks s", "seek s"):
        stage.say(line)
    stage.known["s"].consumers.append("too early")
    with pytest.raises(AssertionError, match="not answered yet"):
        stage.life.check()
