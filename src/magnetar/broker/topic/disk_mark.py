"""When a disk is too full to take messages, and how a topic waits for space.

A topic whose log lost an append to a full disk: consumers stay, producers wait for room.

    writable ──append failed, disk full──▶ waiting ──there is space──▶ reopened
                                            │   ▲
                                            └───┘ looked at every RETRY_MS

Only opening the log again makes it writable, which costs a ledger and sends the consumers away: it is
done once, when the next segment could be set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.base.errors import DiskFullError
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.runtime.alarms import Alarms

RETRY_MS: Final = 1_000
"""Between two looks for room."""


class RoomWait:
    """Of one topic."""

    __slots__ = ("_alarms", "_has_room", "_resume", "refusal")

    def __init__(self, alarms: Alarms, has_room: Callable[[], bool], resume: Callable[[], None]) -> None:
        """`resume` is called once there is space."""
        self._alarms = alarms
        self._has_room = has_room
        self._resume = resume
        self.refusal: str | None = None
        """What producers are told while the topic waits; None: it does not."""

    def begin(self, topic: str, cause: DiskFullError) -> None:
        """The disk is full."""
        self.refusal = f"{topic} accepts no messages until there is free disk space: {cause}"
        self._look_later()

    def check(self) -> None:
        """Raises ServiceNotReadyError while the topic waits."""
        if self.refusal is not None:
            raise ServiceNotReadyError(self.refusal)

    def end(self) -> None:
        """The topic closes."""
        self._alarms.discard(self)

    def _look_later(self) -> None:
        self._alarms.after(self, RETRY_MS, self._look)

    def _look(self) -> None:
        if self._has_room():
            self._resume()
        else:
            self._look_later()


class DiskMark:
    """A share of the disk from which on no messages are taken, and one below which they are again. Pure.

    A disk that is full to the last block refuses whoever comes first, acknowledgements and metadata among
    them. So producers are sent away a little earlier, and what deletes, acknowledges and reads goes on.

        taking ──used ≥ full_percent──▶ refusing ──used < room_percent──▶ taking
    """

    def __init__(self, full_percent: int, room_percent: int) -> None:
        """Of the disk's size, 1 to 100; `full_percent` 100 or more: only a full disk refuses."""
        assert room_percent <= full_percent
        self._full_percent = full_percent
        self._room_percent = room_percent
        self.used_percent = 0.0
        """As last measured."""
        self.refusal: str | None = None
        """What producers are told; None: messages are taken."""

    def measured(self, used_percent: float) -> bool:
        """Takes a measurement; whether messages are refused, or taken again, from now on."""
        self.used_percent = used_percent
        if self.refusal is None and used_percent >= self._full_percent < 100:
            self.refusal = (
                f"the disk is used to {used_percent:.1f} %: from {self._full_percent} % on,"
                " disk_full_percent, no messages are taken until it is"
                f" below {self._room_percent} %; delete topics, acknowledge, shorten retention, or give"
                " it a larger disk"
            )
            return True
        if self.refusal is not None and used_percent < self._room_percent:
            self.refusal = None
            return True
        return False

    def check(self) -> None:
        """Raises ServiceNotReadyError while messages are refused: clients come back by themselves."""
        if self.refusal is not None:
            raise ServiceNotReadyError(self.refusal)
