"""Long lists leave turns of the loop to others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.metadata.sorted_names import NAMES_PER_TURN, in_order
from magnetar.metadata.zookeeper.jute import JuteError, JuteReader, pack_int, pack_string
from magnetar.metadata.zookeeper.link import ZooKeeperLink
from magnetar.metadata.zookeeper.node_writer import NodeWriter
from magnetar.metadata.zookeeper.protocol import Code, Opcode
from magnetar.metadata.zookeeper.session import Reply


class Answering(ZooKeeperLink):
    """A link whose server answers each request with the same record."""

    def __init__(self, record: bytes, error: int = Code.OK) -> None:
        self._reply = Reply(error, JuteReader(record))

    async def call(self, opcode: Opcode, record: bytes) -> Reply:
        assert opcode is Opcode.GET_CHILDREN
        return self._reply


def turns_of(work: Callable[[], Coroutine[Any, Any, list[str]]]) -> tuple[list[str], int]:
    """Its result, and how many turns others had meanwhile."""

    async def story() -> tuple[list[str], int]:
        turns = 0
        task = asyncio.ensure_future(work())
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return task.result(), turns

    return asyncio.run(story())


def names_of(count: int) -> list[str]:
    names = [f"topic-{number:07}" for number in range(count)]
    random.Random(count).shuffle(names)
    return names


def listed(names: list[str], count: int | None = None) -> bytes:
    told = pack_int(len(names) if count is None else count)
    return told + b"".join(map(pack_string, names)) + b"stat"


def test_a_long_listing_of_zookeeper_takes_several_turns() -> None:
    # It was parsed and sorted in one: 100 ms for 100,000 topics.
    names = names_of(10 * NAMES_PER_TURN + 1)
    found, turns = turns_of(lambda: NodeWriter(Answering(listed(names))).children("/x"))
    assert found == names
    assert turns >= 10
    ordered, turns = turns_of(lambda: in_order(names))
    assert ordered == sorted(names)
    assert turns >= 20


def test_a_short_listing_takes_one_turn() -> None:
    names = names_of(NAMES_PER_TURN)
    short, turns = turns_of(lambda: in_order(names))
    assert (short, turns) == (sorted(names), 1)
    found, turns = turns_of(lambda: NodeWriter(Answering(listed(names))).children("/x"))
    assert (found, turns) == (names, 1)


@pytest.mark.parametrize("count", [-1, 0])
def test_no_children_are_none(count: int) -> None:
    assert turns_of(lambda: NodeWriter(Answering(listed([], count))).children("/x"))[0] == []
    assert turns_of(lambda: NodeWriter(Answering(b"", Code.NO_NODE)).children("/x"))[0] == []


@pytest.mark.parametrize(
    "record",
    [listed(["a"], 1 << 30), pack_int(1) + pack_int(9) + b"a", pack_int(1) + pack_int(-2), b"\0"],
    ids=["too few", "too short", "a length below null", "no number"],
)
def test_a_damaged_listing_is_an_error(record: bytes) -> None:
    with pytest.raises(JuteError):
        turns_of(lambda: NodeWriter(Answering(record)).children("/x"))


def test_a_name_that_is_not_utf_8_is_an_error() -> None:
    with pytest.raises(JuteError, match="UTF-8"):
        turns_of(lambda: NodeWriter(Answering(pack_int(1) + pack_int(1) + b"\xff")).children("/x"))
