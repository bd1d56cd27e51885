"""A table of nodes that knows what was written last (pure).

Most writes replace or delete what was written a moment ago: a header of a transaction is written three times
and deleted within milliseconds. Its writer knows the node then, and need not read it, with its checksum.

Only for a table that no other process writes. The caller says when it undid changes. Where a device damaged
such a row, replacing it mends it: nothing of it is read.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.recent import Recent
from magnetar.metadata.tree import Node, NodeTable

NODES_MAX: Final = 8_192
NODE_BYTES_MAX: Final = 512
"""Larger values are not kept, so that all together have 4 MiB at most."""


class RecentNodes:
    """A `NodeTable` before another one."""

    __slots__ = ("_recent", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._recent: Recent[tuple[str, str], Node] = Recent(NODES_MAX)

    def undone(self) -> None:
        """The table is as it was before some change: nothing is known of it."""
        self._recent = Recent(NODES_MAX)

    def get(self, parent: str, name: str) -> Node | None:
        return self._recent.get((parent, name)) or self._table.get(parent, name)

    def listed(self, parent: str, name: str) -> bool:
        return (parent, name) in self._recent or self._table.listed(parent, name)

    def has_children(self, path: str) -> bool:
        return self._table.has_children(path)

    def store(self, parent: str, name: str, node: Node | None) -> None:
        self._table.store(parent, name, node)
        if node is not None and len(node.data) <= NODE_BYTES_MAX:
            self._recent.put((parent, name), node)
        else:
            self._recent.forget((parent, name))

    def remove(self, parent: str, name: str) -> None:
        self._table.remove(parent, name)
        self._recent.forget((parent, name))

    def below(self, path: str) -> list[tuple[str, str, bool]]:
        return self._table.below(path)

    def remove_below(self, path: str) -> None:
        self._table.remove_below(path)
        self.undone()

    def next_sequence(self, parent: str) -> int:
        return self._table.next_sequence(parent)

    def ephemerals(self) -> list[tuple[str, str]]:
        return self._table.ephemerals()
