"""A topic whose log lost an append to a full disk: consumers stay, producers wait for room.

    writable ──append failed, disk full──▶ waiting ──there is room──▶ reopened
                                            │   ▲
                                            └───┘ looked at every RETRY_MS

Only opening the log again makes it writable, which costs a ledger and sends the consumers away: it is
done once, when the next segment could be set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import DiskFullError
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.runtime.alarms import Alarms

RETRY_MS: Final = 1_000
"""Between two looks for room."""


class RoomWait:
    """Of one topic."""

    __slots__ = ("_alarms", "_clock", "_has_room", "_resume", "refusal")

    def __init__(
        self, alarms: Alarms, clock: Clock, has_room: Callable[[], bool], resume: Callable[[], None]
    ) -> None:
        """`resume` is called once there is room."""
        self._alarms = alarms
        self._clock = clock
        self._has_room = has_room
        self._resume = resume
        self.refusal: str | None = None
        """What producers are told while the topic waits; None: it does not."""

    def begin(self, topic: str, cause: DiskFullError) -> None:
        """The disk is full."""
        self.refusal = f"{topic} takes no messages until there is room on the disk: {cause}"
        self._look_later()

    def check(self) -> None:
        """Raises ServiceNotReadyError while the topic waits."""
        if self.refusal is not None:
            raise ServiceNotReadyError(self.refusal)

    def end(self) -> None:
        """The topic closes."""
        self._alarms.discard(self)

    def _look_later(self) -> None:
        self._alarms.set(self, self._clock.now_ms() + RETRY_MS, self._look)

    def _look(self) -> None:
        if self._has_room():
            self._resume()
        else:
            self._look_later()
