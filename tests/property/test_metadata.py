"""Both tables of nodes behave as one, whatever is done to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName, decode_local, encode_local
from magnetar.metadata import paths
from magnetar.metadata.memory import DictNodes
from magnetar.metadata.sqlite_nodes import SqliteNodes
from magnetar.metadata.sqlite_schema import create_tables
from magnetar.metadata.store import Change, Delete, Notification, Put
from magnetar.metadata.tree import Tree

PATHS = ["/a", "/b", "/a/c", "/a/c-", "/a/c0", "/b/c", "/b/c-", "/b/c0", "/a/c/d", "/a/c/d/e"]
VERSIONS = st.sampled_from([None, None, -1, 0, 1])

puts = st.builds(Put, st.sampled_from(PATHS), st.binary(max_size=3), VERSIONS)
deletes = st.builds(Delete, st.sampled_from(PATHS), VERSIONS)
operations = st.one_of(
    puts,
    deletes,
    st.tuples(st.just("transact"), st.lists(st.one_of(puts, deletes), max_size=4)),
    st.tuples(st.just("recursive"), st.sampled_from([*PATHS, "/"])),
    st.tuples(st.just("sequential"), st.sampled_from(PATHS)),
    st.tuples(st.just("ephemeral"), st.sampled_from(PATHS)),
    st.tuples(st.just("end"), st.none()),
)


def apply(tree: Tree, operation: object, told: list[Notification]) -> object:
    match operation:
        case Put(path, data, version):
            return tree.put(told, path, data, version)
        case Delete(path, version):
            tree.delete(told, path, version)
        case ("transact", list(parts)):
            return tree.transact(told, parts)
        case ("recursive", str(path)):
            tree.delete_recursive(told, path)
        case ("sequential", str(path)):
            return tree.put(told, path, b"", None, sequential=True)
        case ("ephemeral", str(path)):
            return tree.put(told, path, b"", None, ephemeral=True)
        case _:
            tree.end_sessions(told)
    return None


def attempt(
    tree: Tree, operation: object, keep: Callable[[], object], undo: Callable[[], object]
) -> tuple[object, list[Notification]]:
    """What came of it, with errors as text; a failed operation is taken back."""
    told: list[Notification] = []
    try:
        result = apply(tree, operation, told)
    except MetadataError as error:
        undo()
        return f"{type(error).__name__}: {error}", []
    keep()
    return result, sorted(told, key=lambda n: (n.path, n.change.value))


def everything(nodes: DictNodes | SqliteNodes) -> dict[str, object]:
    """Every path with its value, found by listing children; checks that nothing is left over."""
    found: dict[str, object] = {}
    stack = [paths.ROOT]
    while stack:
        parent = stack.pop()
        names = nodes.children(parent)
        assert bool(names) == nodes.has_children(parent)
        for name in names:
            path = paths.join(parent, name)
            node = nodes.get(parent, name)
            # A node without a value is there for its children only.
            assert node is not None or nodes.has_children(path)
            found[path] = node
            stack.append(path)
    assert len(nodes.below(paths.ROOT)) == len(found)
    return found


@given(st.lists(operations, max_size=25))
def test_memory_and_sqlite_agree(steps: list[object]) -> None:
    memory = DictNodes()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_tables(connection)
        durable = SqliteNodes(connection, "memory")
        trees = Tree(memory, ManualClock(1), 1), Tree(durable, ManualClock(1), 1)
        for step in steps:
            before = everything(memory)
            memory.mark()
            connection.execute("BEGIN")
            expected = attempt(trees[0], step, memory.mark, memory.undo)
            found = attempt(
                trees[1], step, lambda: connection.execute("COMMIT"), lambda: connection.execute("ROLLBACK")
            )
            assert found == expected
            after = everything(memory)
            assert everything(durable) == after
            told = {n.path for n in expected[1] if n.change is not Change.CHILDREN_CHANGED}
            for path in before.keys() | after.keys():
                changed = before.get(path) != after.get(path)
                assert path in told or not changed, f"{path} changed and nobody was told"


@given(st.text(min_size=1, max_size=30))
def test_local_names_survive_encoding(local: str) -> None:
    encoded = encode_local(local)
    assert decode_local(encoded) == local
    assert "/" not in encoded
    assert encoded.isascii()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1))
def test_topics_print_as_they_parse(local: str) -> None:
    if not local.strip():
        return
    topic = TopicName.of("persistent", "t", "n", local)
    assert TopicName.parse(str(topic)) == topic
    assert TopicName.from_log_name(topic.log_name) == topic
    assert topic.with_partition(7).base == topic
