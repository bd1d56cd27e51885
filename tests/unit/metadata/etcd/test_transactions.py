"""Writes tried on what was read, as etcd's transactions."""

from __future__ import annotations

import pytest

from magnetar.metadata.etcd.transactions import (
    Move,
    SeenNode,
    ancestors,
    below,
    fence,
    plan,
    sequential_path,
)
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Operation,
    Put,
)

NOTHING = SeenNode(0)
MOVE = Move(b"/m", b"1", b"2", 77)


def test_a_write_holds_only_on_what_was_read() -> None:
    seen = {"/a": SeenNode(9, 3, 5), "/b": NOTHING, "/c": SeenNode(4, 0)}
    made = plan(
        [Put("/a", b"x", 3), Put("/b", b"y", MUST_NOT_EXIST), Delete("/c", 0)], seen, own_lease=5, lease=5
    )
    assert [stat and (stat.version, stat.ephemeral, stat.created_by_self) for stat in made.stats] == [
        (4, True, True),
        (0, True, True),
        None,
    ]
    request = made.request(seen, "/root", MOVE)
    marker, a, b, c, children = request.compare
    assert (marker.key, marker.value) == (b"/m", b"1")
    assert [(each.key, each.mod_revision) for each in (a, b, c)] == [
        (b"/root/a", 9),
        (b"/root/b", 0),
        (b"/root/c", 4),
    ]
    assert (children.key, children.range_end, children.create_revision) == (b"/root/c/", b"/root/c0", 0)
    puts = [(part.request_put.key, part.request_put.lease) for part in request.success]
    assert puts == [(b"/root/a", 5), (b"/root/b", 5), (b"", 0), (b"/m", 77)]
    assert request.success[2].request_delete_range.key == b"/root/c"


def test_a_condition_is_compared_and_not_written() -> None:
    seen = {"/list": SeenNode(9, 3), "/b": NOTHING}
    made = plan([Check("/list", 3), Put("/b", b"y")], seen, own_lease=1)
    assert made.stats[0] is None
    request = made.request(seen, "/root", MOVE)
    assert [(each.key, each.mod_revision) for each in request.compare[1:]] == [
        (b"/root/list", 9),
        (b"/root/b", 0),
    ]
    assert [part.request_put.key for part in request.success] == [b"/root/b", b"/m"]
    # Nothing is told of a key that is only compared: a write would wait for it in vain.
    assert made.changed == ["/b"]


def test_each_write_sees_what_those_before_it_did() -> None:
    seen = {"/a": SeenNode(9, 3)}
    made = plan([Delete("/a", 3), Put("/a", b"x", MUST_NOT_EXIST)], seen, own_lease=1)
    assert not made.deletes
    assert made.puts == {"/a": (b"x", 0)}
    assert made.stats[1] is not None
    assert made.stats[1].version == 4
    with pytest.raises(NotFoundError):
        plan([Delete("/a"), Delete("/a")], seen, own_lease=1)
    gone = plan([Put("/b", b"", MUST_NOT_EXIST), Delete("/b")], {"/b": NOTHING}, own_lease=1)
    assert (gone.puts, gone.deletes, gone.changed) == ({}, set(), [])


@pytest.mark.parametrize(
    ("write", "seen", "error"),
    [
        (Put("/a", b"", MUST_NOT_EXIST), SeenNode(1, 0), BadVersionError),
        (Put("/a", b"", 1), SeenNode(1, 0), BadVersionError),
        (Put("/a", b"", 0), NOTHING, BadVersionError),
        (Check("/a", 1), SeenNode(1, 0), BadVersionError),
        (Check("/a", 0), NOTHING, BadVersionError),
        (Delete("/a"), NOTHING, NotFoundError),
        (Delete("/a", 1), SeenNode(1, 0), BadVersionError),
        (Delete("/a"), SeenNode(1, 0, has_children=True), HasChildrenError),
    ],
)
def test_refusals_need_no_server(write: Operation, seen: SeenNode, error: type[Exception]) -> None:
    with pytest.raises(error):
        plan([write], {"/a": seen}, own_lease=1)


def test_a_fence_moves_the_marker_elsewhere() -> None:
    request = fence(MOVE, b"3")
    assert (request.compare[0].value, request.success[0].request_put.value) == (b"1", b"3")
    new = fence(Move(b"/m", b"", b"2", 77), b"3")
    assert (new.compare[0].target, new.compare[0].create_revision) == (1, 0)


def test_paths() -> None:
    assert below(b"/") == (b"/", b"0")
    assert below(b"/a") == (b"/a/", b"/a0")
    assert ancestors("/a/b") == ["/a", "/"]
    assert sequential_path("/ids/ID-", 7) == "/ids/ID-0000000007"
