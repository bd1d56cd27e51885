"""What a client holds, and what is to be sent to it again (pure).

Times are milliseconds of a clock that only runs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from magnetar.base.ids import Position
from magnetar.websocket.deliveries import Incoming

_REJECTED_MAX: Final = 50_000
"""Entries that wait to come again."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that the client has and has not settled."""

    part: int
    """Of which topic or partition of the consumer."""
    position: Position
    pieces: tuple[Position, ...]
    """Entries that are settled with it."""
    message: Incoming | None
    """The message itself, where its next redelivery would be one too many."""

    @property
    def size_bytes(self) -> int:
        """What is kept of it."""
        return 0 if self.message is None else self.message.size_bytes


class Unacked:
    """What a client holds, by the ids that it knows."""

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms`: for so long a client may hold a message; 0: for ever."""
        self._timeout_ms = timeout_ms
        self._held: dict[str, HeldMessage] = {}
        self._due: dict[str, int] = {}
        """In the order of their times: each is as long after its sending as the others."""
        self.held_bytes = 0
        """Bytes of the messages that are kept for the dead letters."""

    def __len__(self) -> int:
        return len(self._held)

    def sent(self, message_id: str, held: HeldMessage, now_ms: int) -> None:
        """The client gets a message, maybe once more."""
        self._let_go(self._held.get(message_id))
        self._held[message_id] = held
        self.held_bytes += held.size_bytes
        if self._timeout_ms:
            self._due.pop(message_id, None)
            self._due[message_id] = now_ms + self._timeout_ms

    def settle(self, message_id: str) -> HeldMessage | None:
        """The client is through with a message; None when it did not hold it."""
        self._due.pop(message_id, None)
        return self._let_go(self._held.pop(message_id, None))

    def _let_go(self, held: HeldMessage | None) -> HeldMessage | None:
        if held is not None:
            self.held_bytes -= held.size_bytes
        return held

    def late(self, now_ms: int) -> list[HeldMessage]:
        """Takes out what was held too long."""
        found = []
        for message_id, due_ms in list(self._due.items()):
            if due_ms > now_ms:
                break
            held = self.settle(message_id)
            assert held is not None
            found.append(held)
        return found

    def forget(self, part: int) -> None:
        """All of one part will come again."""
        for message_id in [known for known, held in self._held.items() if held.part == part]:
            self.settle(message_id)

    @property
    def next_ms(self) -> int | None:
        """When `late` has something; None: never."""
        return next(iter(self._due.values()), None)


class Rejected:
    """What clients gave back, until it is to come again."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._due: list[tuple[int, int, Position]] = []

    def add(self, part: int, position: Position, now_ms: int) -> None:
        """An entry was given back. Beyond `_REJECTED_MAX` it is only unacknowledged, and comes again when the
        client has left."""
        if len(self._due) >= _REJECTED_MAX:
            return
        heapq.heappush(self._due, (now_ms + self._delay_ms, part, position))

    def due(self, now_ms: int) -> dict[int, list[Position]]:
        """Takes out what is to come again, by part, each entry once."""
        found: dict[int, dict[Position, None]] = {}
        while self._due and self._due[0][0] <= now_ms:
            _, part, position = heapq.heappop(self._due)
            found.setdefault(part, {})[position] = None
        return {part: list(positions) for part, positions in found.items()}

    @property
    def next_ms(self) -> int | None:
        """When `due` has something; None: never."""
        return self._due[0][0] if self._due else None
