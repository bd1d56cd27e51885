"""The interface to object stores that tiered storage uses.

Names of objects are relative to the store's URL: parts of letters, digits and `-_.%=`, joined by slashes. An
object is written once, under a new name, and appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a list."""

    name: str
    size_bytes: int
    modified_ms: int
    """By the store's clock, Unix ms."""


class Tagged(NamedTuple):
    """A small object that is changed in place, unlike all others."""

    data: bytes
    tag: str
    """Of these bytes; another one after each change."""


class ObjectStore(Protocol):
    """One folder or bucket. Every method raises StoreError or StoreSetupError besides what it says itself.

    Nothing here waits for a device or a network on the event loop.
    """

    @property
    def url(self) -> str:
        """Where it is, without credentials; opens the same store again."""

    async def put(self, name: str, file: Path) -> None:
        """Writes an object from a file; durable on return. After an error or a cancellation there is no
        object, or the whole one."""

    async def get(self, name: str, start: int, length: int) -> bytes:
        """Exactly `length` > 0 bytes from `start` on.

        Raises MissingObjectError, and DamagedObjectError when the object ends before.
        """

    async def size(self, name: str) -> int:
        """Bytes of an object. Raises MissingObjectError."""

    async def read(self, name: str) -> Tagged | None:
        """A small object as it is now; None when there is none."""

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        """Makes `data` of a small object if its tag is `known`, or if there is none and that is None: of
        several that try at the same time one does. Durable on return. Others see all of it or nothing.

        Raises SwapLostError: nothing was changed. After any other error it is unknown whether it was.
        """

    def list(self, folder: str) -> AsyncIterator[StoredObject]:
        """Objects whose names begin with `folder` and a slash, at any depth, all for ""; in any order.

        One that comes or goes meanwhile may be there or not.
        """

    async def delete(self, name: str) -> None:
        """Deletes an object; not an error when it is not there."""

    def file_of(self, name: str) -> Path | None:
        """Where another process of this machine finds the object as a file; None for other stores."""

    async def close(self) -> None:
        """Gives back what the store holds."""
