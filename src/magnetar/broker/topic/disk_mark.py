"""When a disk is too full to accept messages, and how a topic waits for space.

A topic whose log lost an append to a full disk: consumers stay, producers wait for space.
    writable ──append failed, disk full──▶ waiting ──there is space──▶ reopened
                                            │   ▲
                                            └───┘ checked every RETRY_MS
Only opening the log again makes it writable, which costs a ledger and detaches the consumers: it is done
once, when the next segment could be allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Protocol

from magnetar.base.errors import DiskFullError
from magnetar.broker.errors import ServiceNotReadyError

RETRY_MS: Final = 1_000
"""Milliseconds between two checks for space."""


class RoomAlarms(Protocol):
    """Calls back later: `runtime/alarms.py` `Alarms`."""

    def after(self, key: Hashable, ms: float, call: Callable[[], None]) -> None: ...
    def discard(self, key: Hashable) -> None: ...


class RoomWait:
    """The wait of one topic."""

    __slots__ = ("_alarms", "_has_room", "_resume", "refusal")

    def __init__(self, alarms: RoomAlarms, has_room: Callable[[], bool], resume: Callable[[], None]) -> None:
        """`resume` is called once there is space."""
        self._alarms = alarms
        self._has_room = has_room
        self._resume = resume
        self.refusal: str | None = None
        """The error for producers while the topic waits; None: it does not."""

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
    """A used share of the disk from which on messages are refused, and one below which they are accepted
    again. Pure.

        A completely full disk refuses all writes, acknowledgements and metadata among them. So producers are
        detached a little earlier, and deletions, acknowledgements and reads go on.
            taking ──used ≥ full_percent──▶ refusing ──used < room_percent──▶ taking
    """

    def __init__(self, full_percent: int, room_percent: int) -> None:
        """In percent of the disk's size, 1 to 100; `full_percent` of 100 or more: only a full disk
        refuses."""
        assert room_percent <= full_percent
        self._full_percent = full_percent
        self._room_percent = room_percent
        self.used_percent = 0.0
        """As last measured."""
        self.refusal: str | None = None
        """The error for producers; None: messages are accepted."""

    def measured(self, used_percent: float) -> bool:
        """Records a measurement; returns whether messages are refused, or accepted again, from now on."""
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
        """Raises ServiceNotReadyError while messages are refused: clients retry."""
        if self.refusal is not None:
            raise ServiceNotReadyError(self.refusal)
