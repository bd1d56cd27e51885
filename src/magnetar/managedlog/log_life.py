"""The operations that a log allows, and why it refuses the others (pure)."""

from __future__ import annotations

from magnetar.base.errors import LedgerError, LogError
from magnetar.base.machine import Machine
from magnetar.ledger.api import LedgerFencedError
from magnetar.managedlog.errors import LogClosedError, LogFailedError, LogFencedError, LogTerminatedError
from magnetar.managedlog.log_state import TRANSITIONS, LogState


class LogLife:
    """The state of one log, and the error that ended it."""

    __slots__ = ("_machine", "_name", "error")

    error: LogError | None
    """Why the log refuses writes; the first reason, or that another owner has the log."""

    def __init__(self, name: str, *, terminated: bool) -> None:
        self._name = name
        begin = LogState.TERMINATED if terminated else LogState.OPEN
        self._machine = Machine(f"log {name}", TRANSITIONS, begin)
        self.error = None

    @property
    def now(self) -> LogState:
        """The state."""
        return self._machine.now

    def refusal(self) -> LogError:
        """The error of an append in every state but OPEN; a new object each time."""
        assert self.now is not LogState.OPEN, self._machine.story
        if self.now is LogState.TERMINATED:
            return LogTerminatedError(f"log {self._name} was terminated")
        if self.error is not None:
            return type(self.error)(str(self.error))
        return LogClosedError(f"log {self._name} is closed")

    def terminate(self) -> None:
        """The log refuses appends for good."""
        self._machine.go(LogState.TERMINATED, "another caller terminates it")

    def writer_failed(self, cause: LedgerError) -> LogError:
        """The writer has failed; returns the error of all later appends. Closing goes on."""
        error: LogError
        if isinstance(cause, LedgerFencedError):
            error = LogFencedError(f"log {self._name} was taken over by another owner")
        else:
            error = LogFailedError(f"log {self._name} could not be written: {cause}")
        error.__cause__ = cause
        self.error = self.error or error
        fenced = isinstance(self.error, LogFencedError)
        self._goes(LogState.FENCED if fenced else LogState.FAILED, str(cause))
        return self.error

    def fence(self, error: LogFencedError) -> bool:
        """Another owner has the log; returns whether that is news."""
        if isinstance(self.error, LogFencedError):
            return False
        self.error = error
        self._goes(LogState.FENCED, str(error))
        return True

    def _goes(self, state: LogState, why: str) -> None:
        """Changes the state. Where the table has no transition the log is fenced already, or closes: nothing
        else is to be done."""
        if self._machine.may(state):
            self._machine.go(state, why)

    def close(self, why: str, error: LogError | None = None) -> None:
        """Closing begins; `error` is for appends, unless there is one already. May be called again: the first
        call may have been cancelled."""
        self.error = self.error or error
        if self.now is not LogState.CLOSING:
            self._machine.go(LogState.CLOSING, why)

    def closed(self) -> None:
        """No operation is under way any more."""
        self._machine.go(LogState.CLOSED, "nothing is under way")

    def check(self) -> None:
        """Asserts the invariants."""
        assert self.error is not None or self.now not in (LogState.FAILED, LogState.FENCED), "no reason why"
        fenced = isinstance(self.error, LogFencedError)
        assert self.now is not LogState.FENCED or fenced, "fenced without an owner"
        assert self.now is not LogState.FAILED or not fenced, "another owner has it, and it knows"
        assert self.now is not LogState.OPEN or self.error is None, "open in spite of an error"
