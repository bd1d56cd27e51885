"""Writes in ZooKeeper's operations, and what refusals teach."""

from __future__ import annotations

import pytest

from magnetar.base.errors import MetadataError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Put,
)
from magnetar.metadata.zookeeper.jute import JuteReader
from magnetar.metadata.zookeeper.protocol import (
    CheckNode,
    Code,
    Create,
    CreateMode,
    NodeStat,
    Remove,
    ReplyOutcome,
    SetData,
    pack_multi,
    read_multi,
)
from magnetar.metadata.zookeeper.writes import (
    IMPLIED,
    FoundNode,
    Remedy,
    Step,
    ancestors,
    failed_index,
    learn,
    outcome_by_marker,
)


def found(data: bytes, version: int = 3, mzxid: int = 50) -> FoundNode:
    return FoundNode(data, NodeStat(1, mzxid, 100, 200, version, 0, 0))


def test_the_likelier_case_is_tried_first() -> None:
    assert Step(Put("/a", b"x")).operation() == SetData("/a", b"x", -1)
    assert Step(Put("/a", b"x", MUST_NOT_EXIST)).operation() == Create("/a", b"x")
    assert Step(Put("/a", b"x", 4)).operation() == SetData("/a", b"x", 4)
    assert Step(Put("/a", b"x"), CreateMode.EPHEMERAL).operation() == Create("/a", b"x", CreateMode.EPHEMERAL)
    known = Step(Put("/a", b"x", 4), CreateMode.EPHEMERAL)
    assert known.operation() == SetData("/a", b"x", 4), "created anew it would be gone for a moment"
    new = Step(Put("/a", b"x", MUST_NOT_EXIST), CreateMode.EPHEMERAL)
    assert new.operation() == Create("/a", b"x", CreateMode.EPHEMERAL)
    assert Step(Delete("/a")).operation() == Remove("/a", -1)
    assert Step(Delete("/a", 4)).operation() == Remove("/a", 4)
    assert Step(Check("/a", 4)).operation() == CheckNode("/a", 4)
    assert [Step(each).changes for each in (Check("/a", 4), Delete("/a"))] == [False, True]


def test_a_put_learns_whether_there_is_a_value() -> None:
    step = Step(Put("/a/b", b"x"))
    assert learn(step, Code.NO_NODE, None) is Remedy.TRY_AGAIN
    assert step.operation() == Create("/a/b", b"x")
    assert learn(step, Code.NO_NODE, None) is Remedy.MAKE_PARENTS
    assert learn(step, Code.NODE_EXISTS, None) is Remedy.TRY_AGAIN
    assert learn(step, Code.NODE_EXISTS, found(b"y")) is Remedy.TRY_AGAIN
    assert step.operation() == SetData("/a/b", b"x", -1)


def test_a_creation_takes_over_a_node_without_a_value() -> None:
    step = Step(Put("/a", b"x", MUST_NOT_EXIST))
    assert learn(step, Code.NODE_EXISTS, found(IMPLIED, 2)) is Remedy.TRY_AGAIN
    assert step.operation() == SetData("/a", b"x", 2)
    assert learn(step, Code.BAD_VERSION, found(b"theirs")) is Remedy.TRY_AGAIN
    with pytest.raises(BadVersionError) as caught:
        learn(step, Code.NODE_EXISTS, found(b"theirs", 3))
    assert (caught.value.expected, caught.value.actual) == (MUST_NOT_EXIST, 3)


@pytest.mark.parametrize(
    ("step", "code", "node", "error"),
    [
        (Step(Put("/a", b"", 4)), Code.NO_NODE, None, BadVersionError),
        (Step(Put("/a", b"", 4)), Code.BAD_VERSION, found(b"x"), BadVersionError),
        (Step(Check("/a", 4)), Code.NO_NODE, None, BadVersionError),
        (Step(Check("/a", 4)), Code.BAD_VERSION, found(b"x"), BadVersionError),
        (Step(Check("/a", 4)), Code.BAD_VERSION, found(IMPLIED), BadVersionError),
        (Step(Delete("/a")), Code.NO_NODE, None, NotFoundError),
        (Step(Delete("/a", 4)), Code.BAD_VERSION, found(IMPLIED), NotFoundError),
        (Step(Delete("/a", 4)), Code.BAD_VERSION, found(b"x"), BadVersionError),
        (Step(Delete("/a")), Code.NOT_EMPTY, found(b"x"), HasChildrenError),
        (Step(Delete("/a")), Code.NOT_EMPTY, found(IMPLIED), NotFoundError),
        (Step(Put("/a", b"")), Code.NO_CHILDREN_FOR_EPHEMERALS, None, MetadataError),
        (Step(Put("/a", b"")), -102, None, MetadataError),
    ],
)
def test_refusals_are_told_by_name(
    step: Step, code: int, node: FoundNode | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        learn(step, code, node)


def test_outcomes_are_known_from_the_marker() -> None:
    marker = NodeStat(1, 50, 5, 777, 9, 0, 0)
    create = outcome_by_marker(Create("/a", b""), marker, None)
    assert create.stat is not None
    assert (create.path, create.stat.version, create.stat.created_ms) == ("/a", 0, 777)

    def version(expected: int, node: FoundNode | None) -> int:
        stat = outcome_by_marker(SetData("/a", b"", expected), marker, node).stat
        assert stat is not None
        return stat.version

    assert version(4, None) == 5
    assert version(-1, found(b"", 8, mzxid=50)) == 8
    # Another client wrote since: what is answered is not the newest version, so that comparing with it fails.
    assert version(-1, found(b"", 8, mzxid=51)) == 7
    assert outcome_by_marker(Remove("/a"), marker, None) == ReplyOutcome(Code.OK)
    assert outcome_by_marker(CheckNode("/a", 3), marker, None) == ReplyOutcome(Code.OK)


def test_the_first_refusal_counts() -> None:
    outcomes = [
        ReplyOutcome(0),
        ReplyOutcome(Code.ROLLED_BACK),
        ReplyOutcome(Code.NODE_EXISTS),
        ReplyOutcome(Code.ROLLED_BACK),
    ]
    assert failed_index(outcomes) == 2
    assert failed_index([ReplyOutcome(0)]) is None
    assert ancestors("/a/b/c") == ["/a", "/a/b"]


def test_a_multi_is_a_list_of_operations_with_an_end() -> None:
    packed = pack_multi([Remove("/a", 3)])
    reader = JuteReader(packed)
    assert (reader.int32(), reader.flag(), reader.int32()) == (2, False, -1)
    assert (reader.string(), reader.int32()) == ("/a", 3)
    assert (reader.int32(), reader.flag(), reader.int32(), reader.left) == (-1, True, -1, 0)


def test_a_condition_is_the_operation_check() -> None:
    reader = JuteReader(pack_multi([CheckNode("/a", 3)]))
    assert (reader.int32(), reader.flag(), reader.int32()) == (13, False, -1)
    assert (reader.string(), reader.int32()) == ("/a", 3)
    # As a server answers: each result has a head, a check nothing more.
    head, end = b"\0\0\0\x0d\0\0\0\0\0", b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"
    assert read_multi(JuteReader(head + end)) == [ReplyOutcome(Code.OK)]
