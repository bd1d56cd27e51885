"""The last bundles that the leader moved, for operators: `/magnetar/last-moves`, JSON."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.broker.balance.shedding import Shed
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import MetadataStore

_log = logging.getLogger("magnetar.broker.balance")

_KEPT: Final = 20
_END_MS: Final = 253_402_300_800_000
"""Unix milliseconds of the year 10000, which dates in Python do not reach."""


@dataclass(frozen=True, slots=True)
class LastMove:
    """A bundle that was moved."""

    at_ms: int
    """Unix milliseconds, by the clock of the leader."""
    bundle: str
    source: str
    target: str
    reason: str

    @classmethod
    def of(cls, shed: Shed, at_ms: int) -> LastMove:
        """A move that was made at that time."""
        return cls(at_ms, str(shed.bundle), shed.source, shed.target, shed.reason)


class LastMoves:
    """As the leader keeps them. A leader that follows adds to what it finds."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._new: deque[LastMove] = deque(maxlen=_KEPT)

    def add(self, move: LastMove) -> None:
        """Notes one more; `write` stores it."""
        self._new.append(move)

    async def write(self) -> None:
        """Stores what was added; logs a store that cannot be reached."""
        try:
            kept = [*await read(self._store), *self._new][-_KEPT:]
            await self._store.put(keys.LAST_MOVES, json.dumps([asdict(each) for each in kept]).encode())
        except MetadataError as error:
            # They only inform.
            _log.warning("the last moves could not be written down: %s", error)
        else:
            self._new.clear()


async def read(store: MetadataStore) -> list[LastMove]:
    """The last moves, oldest first. Raises MetadataError."""
    value = await store.get(keys.LAST_MOVES)
    try:
        return [] if value is None else decode_moves(value.data)
    except DamagedDocumentError:
        # A later version may have written it.
        return []


def decode_moves(data: bytes) -> list[LastMove]:
    """The moves in a stored value. Raises DamagedDocumentError."""
    try:
        return [_move(each) for each in json.loads(data)]
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise DamagedDocumentError(keys.LAST_MOVES, f"it does not list moves ({error!r})") from error


def _move(told: Mapping[str, object]) -> LastMove:
    at_ms = int(str(told["at_ms"]))
    if not 0 <= at_ms < _END_MS:
        raise ValueError(at_ms)
    return LastMove(
        at_ms,
        str(told["bundle"]),
        str(told["source"]),
        str(told["target"]),
        str(told["reason"]),
    )
