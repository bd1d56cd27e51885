"""The table of nodes that knows what was written last."""

from __future__ import annotations

from magnetar.metadata.memory import DictNodes
from magnetar.metadata.recent_nodes import NODE_BYTES_MAX, RecentNodes
from magnetar.metadata.tree import Node


class CountedNodes(DictNodes):
    """Counts reads of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0

    def get(self, parent: str, name: str) -> Node | None:
        self.gets += 1
        return super().get(parent, name)


def node(data: bytes = b"", version: int = 0) -> Node:
    return Node(data, version, 1, 1, ephemeral=False, session=1)


def test_what_was_written_is_not_read_again() -> None:
    table = CountedNodes()
    nodes = RecentNodes(table)
    nodes.store("/a", "b", node(b"1"))
    nodes.store("/a", "b", node(b"2", 1))
    assert nodes.get("/a", "b") == node(b"2", 1)
    assert nodes.listed("/a", "b")
    assert table.gets == 0
    nodes.remove("/a", "b")
    assert nodes.get("/a", "b") is None
    assert not nodes.listed("/a", "b")


def test_large_and_implied_nodes_are_read_from_the_table() -> None:
    table = CountedNodes()
    nodes = RecentNodes(table)
    for later in (node(bytes(NODE_BYTES_MAX + 1), 1), None):
        nodes.store("/a", "b", node())
        nodes.store("/a", "b", later)
        assert nodes.get("/a", "b") == later
        assert nodes.listed("/a", "b")
    assert table.gets == 2


def test_after_a_change_was_undone_or_all_was_removed_nothing_is_known() -> None:
    table = CountedNodes()
    nodes = RecentNodes(table)
    nodes.store("/a", "b", node())
    table.mark()
    nodes.store("/a", "b", node(b"lost", 1))
    table.undo()
    nodes.undone()
    assert nodes.get("/a", "b") == node()
    nodes.store("/a", "b", node(b"", 1))
    nodes.remove_below("/a")
    assert nodes.get("/a", "b") is None
