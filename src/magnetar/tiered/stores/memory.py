"""Objects in memory, for `--ephemeral` and for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

from magnetar.base.clock import Clock
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import in_thread
from magnetar.tiered.errors import DamagedObjectError, MissingObjectError, SwapLostError
from magnetar.tiered.stores.object_store import MEMORY_URL, StoredObject, Tagged


class MemoryStore:
    """An `ObjectStore` in a dictionary."""

    def __init__(self, clock: Clock) -> None:
        self.objects: dict[str, bytes] = {}
        self.gets: list[tuple[str, int, int]] = []
        """All ranged reads so far: name, start, length."""
        self._modified: dict[str, int] = {}
        self._clock = clock

    @property
    def url(self) -> str:
        return MEMORY_URL

    async def put(self, name: str, file: Path) -> None:
        self.objects[name] = await in_thread(file.read_bytes)
        self._modified[name] = self._clock.now_ms()

    async def get(self, name: str, start: int, length: int) -> bytes:
        await yield_loop()
        self.gets.append((name, start, length))
        data = self._object(name)[start : start + length]
        if len(data) != length:
            raise DamagedObjectError(
                name, f"it ends at byte {start + len(data)}, {start + length} are needed"
            )
        return data

    def _object(self, name: str) -> bytes:
        data = self.objects.get(name)
        if data is None:
            raise MissingObjectError(
                name, "there is no such object in memory", "a restart has emptied the store"
            )
        return data

    async def size(self, name: str) -> int:
        await yield_loop()
        return len(self._object(name))

    async def read(self, name: str) -> Tagged | None:
        await yield_loop()
        data = self.objects.get(name)
        return None if data is None else Tagged(data, sha256(data).hexdigest())

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        await yield_loop()
        there = self.objects.get(name)
        if known != (None if there is None else sha256(there).hexdigest()):
            raise SwapLostError(name, "another process has changed it", "look at it again")
        self.objects[name] = data
        self._modified[name] = self._clock.now_ms()

    async def list(self, folder: str) -> AsyncIterator[StoredObject]:
        for name in sorted(self.objects):
            if not folder or name.startswith(f"{folder}/"):
                await yield_loop()
                if (data := self.objects.get(name)) is not None:
                    yield StoredObject(name, len(data), self._modified[name])

    async def delete(self, name: str) -> None:
        await yield_loop()
        self.objects.pop(name, None)
        self._modified.pop(name, None)

    def file_of(self, name: str) -> Path | None:
        return None

    async def close(self) -> None:
        """Does nothing: the objects vanish with the process."""
