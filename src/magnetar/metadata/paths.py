"""Paths of the metadata tree: absolute, slash-separated, without a trailing slash; "/" is the root."""

from __future__ import annotations

from typing import Final

from magnetar.base.errors import MetadataError

ROOT: Final = "/"


class InvalidPathError(MetadataError):
    """The path is not absolute, ends with a slash, or has an empty part."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} is not a metadata path")
        self.path = path


def split(path: str) -> tuple[str, str]:
    """Parent and name of a path that can hold a value: `/a/b` gives `/a` and `b`, `/a` gives `/` and `a`.

    Raises InvalidPathError, also for the root.
    """
    parent, separator, name = path.rpartition("/")
    if not separator or not name or path[0] != "/" or "//" in path:
        raise InvalidPathError(path)
    return parent or ROOT, name


def check(path: str) -> None:
    """Raises InvalidPathError unless the path is the root or can hold a value."""
    if path != ROOT:
        split(path)


def join(parent: str, name: str) -> str:
    """The path of a child."""
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"


def covers(prefix: str, path: str) -> bool:
    """Whether `path` is `prefix` or lies below it."""
    return prefix == ROOT or path == prefix or path.startswith(f"{prefix}/")


def covering(path: str) -> list[str]:
    """Every prefix that covers the path: the root, each path above it, and itself."""
    if path == ROOT:
        return [path]
    return [ROOT, *(path[:at] for at, char in enumerate(path) if char == "/" and at), path]
