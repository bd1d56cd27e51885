"""Finds the route of a path in a tree of path parts (pure).

Two hundred regular expressions, compiled when the service starts, would block the event loop for ten or
twenty milliseconds just when the first clients come.
"""

from __future__ import annotations

from typing import Generic, TypeVar

_T = TypeVar("_T")

_REST = ":path}"


class PathTree(Generic[_T]):
    """Values by path pattern: `/a/{name}/b`; `{name:path}` at the end takes all that is left."""

    __slots__ = ("_literals", "_names", "_rest", "_rest_names", "_value", "_variable")

    def __init__(self) -> None:
        self._literals: dict[str, PathTree[_T]] = {}
        self._variable: PathTree[_T] | None = None
        self._value: _T | None = None
        # The names cover the whole path here: otherwise two patterns could name the same part.
        self._names: tuple[str, ...] = ()
        self._rest: _T | None = None
        self._rest_names: tuple[str, ...] = ()

    def add(self, pattern: str, value: _T) -> None:
        """Adds a pattern, which must be new."""
        node = self
        names: list[str] = []
        for part in pattern.split("/"):
            if part.endswith(_REST):
                assert node._rest is None, pattern
                assert pattern.endswith(part), pattern
                node._rest, node._rest_names = value, (*names, part[1 : -len(_REST)])
                return
            if part.startswith("{"):
                names.append(part[1:-1])
                if node._variable is None:
                    node._variable = PathTree()
                node = node._variable
            else:
                assert "{" not in part, pattern
                node = node._literals.setdefault(part, PathTree())
        assert node._value is None, pattern
        node._value, node._names = value, tuple(names)

    def find(self, path: str) -> tuple[_T, dict[str, str]] | None:
        """The value for a path, and its variables; literal parts win over variables. None for an unknown
        path."""
        found = self._find(path.split("/"), 0, ())
        return None if found is None else (found[0], dict(zip(found[1], found[2], strict=True)))

    def _find(
        self, parts: list[str], at: int, taken: tuple[str, ...]
    ) -> tuple[_T, tuple[str, ...], tuple[str, ...]] | None:
        if at == len(parts):
            return None if self._value is None else (self._value, self._names, taken)
        part = parts[at]
        literal = self._literals.get(part)
        if literal is not None and (found := literal._find(parts, at + 1, taken)) is not None:
            return found
        if self._variable is not None and part:
            found = self._variable._find(parts, at + 1, (*taken, part))
            if found is not None:
                return found
        if self._rest is not None:
            return self._rest, self._rest_names, (*taken, "/".join(parts[at:]))
        return None
