"""Paths to what answers them."""

from __future__ import annotations

import pytest

from magnetar.admin.calls.paths import PathTree

PATTERNS = (
    "/",
    "/a/{tenant}",
    "/a/{tenant}/{namespace}",
    "/a/{tenant}/list",
    "/a/own/{name}/x",
    "/a/{other}/{name}/y",
    "/files/{rest:path}",
    "/files/{tenant}/new",
)


@pytest.fixture
def tree() -> PathTree[str]:
    tree: PathTree[str] = PathTree()
    for pattern in PATTERNS:
        tree.add(pattern, pattern)
    return tree


@pytest.mark.parametrize(
    ("path", "pattern", "variables"),
    [
        ("/", "/", {}),
        ("/a/t", "/a/{tenant}", {"tenant": "t"}),
        ("/a/t/n", "/a/{tenant}/{namespace}", {"tenant": "t", "namespace": "n"}),
        # Literal parts win over variables.
        ("/a/t/list", "/a/{tenant}/list", {"tenant": "t"}),
        # A literal part that leads nowhere does not hide the variable beside it.
        ("/a/own/n/y", "/a/{other}/{name}/y", {"other": "own", "name": "n"}),
        ("/a/own", "/a/{tenant}", {"tenant": "own"}),
        ("/files/a/b/c", "/files/{rest:path}", {"rest": "a/b/c"}),
        ("/files/a/new", "/files/{tenant}/new", {"tenant": "a"}),
        ("/files/", "/files/{rest:path}", {"rest": ""}),
    ],
)
def test_finds_the_most_literal_pattern(
    tree: PathTree[str], path: str, pattern: str, variables: dict[str, str]
) -> None:
    assert tree.find(path) == (pattern, variables)


@pytest.mark.parametrize("path", ["", "/b", "/a", "/a//n", "/a/t/n/z", "/files", "/A/t"])
def test_unknown_paths(tree: PathTree[str], path: str) -> None:
    assert tree.find(path) is None


def test_a_pattern_is_added_once() -> None:
    tree: PathTree[str] = PathTree()
    tree.add("/a/{b}", "1")
    with pytest.raises(AssertionError):
        tree.add("/a/{c}", "2")
