"""The unsettled messages of a client, and entries to be redelivered to it (pure).

Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from magnetar.base.ids import Position
from magnetar.websocket.deliveries import Incoming

_REJECTED_MAX: Final = 50_000
"""Most entries that wait for redelivery."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """An unsettled message of a client."""

    part: int
    """Index of the topic or partition."""
    position: Position
    pieces: tuple[Position, ...]
    """Positions of the entries that are settled with it."""
    message: Incoming | None
    """The message itself when its next redelivery would exceed the limit; else None."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the kept message."""
        return 0 if self.message is None else self.message.size_bytes


class Unacked:
    """The unsettled messages of a client by message id."""

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms`: milliseconds that a client may hold a message; 0: no limit."""
        self._timeout_ms = timeout_ms
        self._held: dict[str, HeldMessage] = {}
        self._due: dict[str, int] = {}
        """Ordered by time, because all messages have the same timeout."""
        self.held_bytes = 0
        """Bytes of the messages that are kept for the dead letters."""

    def __len__(self) -> int:
        return len(self._held)

    def sent(self, message_id: str, held: HeldMessage, now_ms: int) -> None:
        """Notes a message that is sent to the client, possibly again."""
        self._let_go(self._held.get(message_id))
        self._held[message_id] = held
        self.held_bytes += held.size_bytes
        if self._timeout_ms:
            self._due.pop(message_id, None)
            self._due[message_id] = now_ms + self._timeout_ms

    def settle(self, message_id: str) -> HeldMessage | None:
        """Removes a message that the client has settled; None when it did not hold it."""
        self._due.pop(message_id, None)
        return self._let_go(self._held.pop(message_id, None))

    def _let_go(self, held: HeldMessage | None) -> HeldMessage | None:
        if held is not None:
            self.held_bytes -= held.size_bytes
        return held

    def late(self, now_ms: int) -> list[HeldMessage]:
        """Removes and returns the messages held for longer than the timeout."""
        found = []
        for message_id, due_ms in list(self._due.items()):
            if due_ms > now_ms:
                break
            held = self.settle(message_id)
            assert held is not None
            found.append(held)
        return found

    def forget(self, part: int) -> None:
        """Removes all messages of one part, which will be redelivered."""
        for message_id in [known for known, held in self._held.items() if held.part == part]:
            self.settle(message_id)

    @property
    def next_ms(self) -> int | None:
        """Time at which `late` may return a message; None: never."""
        return next(iter(self._due.values()), None)


class Rejected:
    """Entries that the client rejected, until their redelivery."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._due: list[tuple[int, int, Position]] = []

    def add(self, part: int, position: Position, now_ms: int) -> None:
        """Adds a rejected entry. Beyond `_REJECTED_MAX` entries it only stays unacknowledged, and is
        redelivered after the client has left."""
        if len(self._due) >= _REJECTED_MAX:
            return
        heapq.heappush(self._due, (now_ms + self._delay_ms, part, position))

    def due(self, now_ms: int) -> dict[int, list[Position]]:
        """Removes and returns the entries to be redelivered now, by part, each once."""
        found: dict[int, dict[Position, None]] = {}
        while self._due and self._due[0][0] <= now_ms:
            _, part, position = heapq.heappop(self._due)
            found.setdefault(part, {})[position] = None
        return {part: list(positions) for part, positions in found.items()}

    @property
    def next_ms(self) -> int | None:
        """Time at which `due` may return an entry; None: never."""
        return self._due[0][0] if self._due else None
