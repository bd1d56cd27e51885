"""What can go wrong with a function.

FunctionError
├── CodeError             the user's code cannot be loaded, or is not a function
├── UnreadableInputError  an entry of an input topic cannot be given to a function
├── BadResultError        a result or a published value cannot be encoded
├── StateFileError        the file of a function's state cannot be read or written
├── CannotConfineError    the system cannot confine a process
├── ConfinementError      the code cannot be kept from what is not its own
├── NoDeduplicationError  effectively once cannot be kept: deduplication of an output is off
├── NoOwnerError          nothing says whose rights the function's code has
├── RecordingError        a recording, or what is expected of it, is not understood
├── NoSuchInstanceError   the function has no instance of this number
└── TriggerError          a function could not be triggered, or gave no result in time
"""

from __future__ import annotations

from magnetar.base.errors import MagnetarError


class FunctionError(MagnetarError):
    """A function, or what was asked of it, failed."""


class CodeError(FunctionError):
    """The user's code cannot be loaded. The message holds the traceback, if it has one."""


class UnreadableInputError(FunctionError):
    """An entry of an input topic is encrypted, a part of a large message, or damaged."""


class BadResultError(FunctionError, TypeError):
    """A value is of a type that the SerDe cannot encode. A TypeError, as it is in Pulsar's."""


class StateFileError(FunctionError):
    """The state of a function cannot be read or written."""

    retriable = True


class CannotConfineError(FunctionError):
    """The system cannot confine a process. The message says why."""


class ConfinementError(FunctionError):
    """The code cannot be kept from the server's files, and must be."""


class NoDeduplicationError(FunctionError):
    """Deduplication of an output is off, and cannot be switched on."""


class NoOwnerError(FunctionError):
    """The function was created without authentication: nothing says whose rights its code has."""

    def __init__(self, full_name: str) -> None:
        super().__init__(
            f"{full_name} was created without authentication, so that nothing says whose rights its code has:"
            " update it with the role that shall own it"
        )


class RecordingError(FunctionError):
    """A file of recorded messages, or of expected results, is not understood. The message names the line."""


class NoSuchInstanceError(FunctionError):
    """The function has no instance of this number."""

    def __init__(self, full_name: str, instance: int) -> None:
        super().__init__(f"{full_name}/{instance} doesn't exist")


class TriggerError(FunctionError):
    """A function could not be triggered. `timed_out`: it ran, and gave no result in time."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
