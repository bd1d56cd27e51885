"""Which changes of a cursor are durable, which are being written, and the callers that wait for them (pure).

    IDLE ── DELTA ──── one entry is on its way to the cursor's ledger
     │  ─── SWITCH ─── a new ledger begins with the whole state, and is then named in the metadata store
     └──── FOLD ───── the whole state goes into the metadata store, and the ledger is deleted

One write at a time: changes made meanwhile go with the next one. `durable <= writing <= changed` are three
versions of the state: after a crash, after the write under way, and in memory.

The driver is `cursor_store.py`. It asks `plan` what to do, reports how each write ended, and closes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from magnetar.base.machine import Machine, Transitions
from magnetar.managedlog.cursors.cursor_state import CursorState

Durable = Callable[[BaseException | None], None]
"""Called with None when durable, else with the error."""


class Writing(Enum):
    """The write under way."""

    IDLE = "nothing"
    DELTA = "a delta"
    SWITCH = "a new ledger"
    FOLD = "the metadata store"


TRANSITIONS: Final[Transitions[Writing]] = {
    Writing.IDLE: frozenset({Writing.DELTA, Writing.SWITCH, Writing.FOLD}),
    Writing.DELTA: frozenset({Writing.IDLE}),
    Writing.SWITCH: frozenset({Writing.IDLE}),
    Writing.FOLD: frozenset({Writing.IDLE}),
}


class WritePlan(Enum):
    """What the driver has to do now."""

    NOTHING = "nothing"
    LATER = "report the failure to the waiting callers, and try again later"
    DELTA = "write the changes, or the whole state, into the ledger"
    SWITCH = "begin another ledger"
    FOLD = "write the whole state into the metadata store"


class Weights(Protocol):
    """The ledger of the deltas."""

    @property
    def outweighed(self) -> bool:
        """Whether the deltas outweigh the state so much that a new ledger is due."""


class CursorWrites:
    """The writes of one cursor."""

    __slots__ = ("_closed", "_failure", "_machine", "_state", "_stores", "_waiters", "durable", "writing")

    durable: int
    """Version of the state after a crash."""
    writing: int
    """Version after the write under way; `durable` without one."""

    def __init__(self, name: str, state: CursorState) -> None:
        """`state` is durable as it is now; `name` appears in logs."""
        self._state = state
        self._machine = Machine(name, TRANSITIONS, Writing.IDLE)
        self.durable = self.writing = state.version
        self._failure: BaseException | None = None
        # The ledgers' disk is full, and the metadata store's reserve holds the state.
        self._stores = False
        self._closed = False
        # Versions only grow, and so do those in the line.
        self._waiters: deque[tuple[int, Durable]] = deque()

    # Queries

    @property
    def name(self) -> str:
        """The cursor's name in logs."""
        return self._machine.name

    @property
    def now(self) -> Writing:
        """The write under way."""
        return self._machine.now

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._machine.now is not Writing.IDLE

    @property
    def dirty(self) -> bool:
        """Whether changes are not durable yet."""
        return self._state.version != self.durable

    @property
    def closed(self) -> bool:
        """Whether no write begins any more. One that is under way ends, and its end is reported."""
        return self._closed

    @property
    def awaited(self) -> bool:
        """Whether any caller waits for durability."""
        return bool(self._waiters)

    def plan(self, ledger: Weights | None, has_room: Callable[[], bool]) -> WritePlan:
        """What to do now. `ledger` takes the deltas, None when there is none that can.

        `has_room` is called after a failure only: on a full disk no ledger is created for each attempt.
        """
        if self.busy or self._closed or not self.dirty:
            return WritePlan.NOTHING
        if (self._failure is not None or self._stores) and not has_room():
            # A failure in the store too is reported once, and tried again at the next request.
            return (
                WritePlan.FOLD
                if self._stores and (self._failure is None or self._waiters)
                else WritePlan.LATER
            )
        self._stores = False
        # A delta only adds acknowledgements, so a seek needs a new ledger.
        if ledger is None or self._state.replaced or ledger.outweighed:
            return WritePlan.SWITCH
        return WritePlan.DELTA

    # Events

    def wait(self, callback: Durable) -> None:
        """Calls `callback` once the changes so far are durable; only for open changes, before `close`."""
        assert self.dirty, "a caller waits for durable changes"
        assert not self._closed, "nothing is written any more"
        assert not self._waiters or self._waiters[-1][0] <= self._state.version, "versions went back"
        self._waiters.append((self._state.version, callback))

    def begin(self, what: Writing) -> None:
        """A write of the present state begins."""
        assert what is not Writing.IDLE, "a write is of something"
        assert not self._closed, f"{self.name} is closed"
        self._machine.go(what, f"version {self._state.version}")
        self.writing = self._state.version

    def include(self) -> None:
        """The write under way has the present state: changes made since it began go with it."""
        assert self.now in (Writing.SWITCH, Writing.FOLD), "a delta is made when its write begins"
        self.writing = self._state.version

    def written(self) -> None:
        """The write under way is durable: tells its waiting callers."""
        assert self.writing >= self.durable, "what was durable is not any more"
        self._machine.go(Writing.IDLE, f"version {self.writing} is durable")
        self._failure = None
        self.durable = self.writing
        waiters = self._waiters
        while waiters and waiters[0][0] <= self.durable:
            waiters.popleft()[1](None)

    def failed(self, error: BaseException | None) -> None:
        """Nothing was written, and no write is under way: tells all waiting callers.

        The changes stay for the next write. None repeats the previous error.
        """
        self.lost()
        self._failure = self._failure if error is None else error
        self._tell(self._failure)

    def lost(self) -> None:
        """The write under way will not become durable; `failed` or another write follows at once."""
        if self.busy:
            self._machine.go(Writing.IDLE, f"version {self.writing} was lost")
            self.writing = self.durable

    def ledger_failed(self, error: BaseException, *, store_takes_it: bool) -> WritePlan:
        """The ledger is lost, with the delta under way.

        `store_takes_it`: the disk of the ledgers is full, and the state goes into the metadata store until it
        is not. FOLD when it is to be written there at once; otherwise the waiting callers were told.
        """
        self.lost()
        self._stores = store_takes_it and not self._closed
        if not self._stores:
            self.failed(error)
            return WritePlan.NOTHING
        # A ledger can be lost without a write under way. `close` would wait for ever for the end of a write
        # that does not exist.
        return WritePlan.FOLD if self.dirty else WritePlan.NOTHING

    def close(self, error: BaseException) -> None:
        """No write begins any more; waiting callers get `error`. May be called again."""
        self._closed = True
        self._tell(error)

    def reopen(self) -> None:
        """The cursor was closed to be deleted, and the deletion failed."""
        assert self._closed, "it was closed before"
        self._closed = False

    def _tell(self, error: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, deque()
        for _, callback in waiters:
            callback(error)

    def check(self) -> None:
        """Asserts the invariants."""
        assert self.durable <= self.writing <= self._state.version, "versions are out of order"
        assert self.busy or self.writing == self.durable, "nothing is written, and something will be durable"
        # Also that closing ends, which waits for a write under way by waiting for the changes. A fold of
        # durable state is part of closing.
        waits = self.now in (Writing.DELTA, Writing.SWITCH)
        assert not waits or self.dirty, f"{self.name} writes {self.now.value}, and nothing has changed"
        versions = [version for version, _ in self._waiters]
        assert versions == sorted(versions), "the line is out of order"
        assert not versions or versions[0] > self.durable, "a caller waits for durable changes"
        assert not (self._closed and versions), "a caller waits for changes that will not be written"
