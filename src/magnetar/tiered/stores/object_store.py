"""The interface to object stores that tiered storage uses.

Names of objects are relative to the store's URL: parts of letters, digits and `-_.%=`, joined by slashes. An
object is written once, under a new name, and readers see it whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

MEMORY_URL: Final = "memory://"
"""URL of a store in the memory of its process."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a list."""

    name: str
    size_bytes: int
    modified_ms: int
    """Time of the last change by the store's clock, Unix ms."""


class Tagged(NamedTuple):
    """Content and tag of a small object. Only such objects are changed in place."""

    data: bytes
    tag: str
    """Tag of these bytes; each change gives another one."""


class ObjectStore(Protocol):
    """One folder or bucket. Every method may raise StoreError and StoreSetupError, besides those it names.

    No method blocks the event loop while it waits for a device or a network.
    """

    @property
    def url(self) -> str:
        """URL of the store, without credentials; `open_store` opens the same store with it."""

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
        """The present content and tag of a small object; None when it does not exist."""

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        """Replaces a small object by `data` if its tag is `known`; `known` None: if it does not exist. Of
        several concurrent calls one succeeds. Durable on return; readers see the old or the new bytes.

        Raises SwapLostError when nothing was changed. After any other error the object may have changed.
        """

    def list(self, folder: str) -> AsyncIterator[StoredObject]:
        """All objects below `folder` at any depth, in any order; "" lists the whole store.

        An object made or deleted meanwhile may be listed or not.
        """

    async def delete(self, name: str) -> None:
        """Deletes an object; not an error when it does not exist."""

    def file_of(self, name: str) -> Path | None:
        """Path of the object's file for other processes of this machine; None for stores without files."""

    async def close(self) -> None:
        """Releases the resources of the store."""
