"""What the catalogue of functions, the workers that run them, and the admin API know of each other.

The catalogue says which functions there shall be; the workers make it so, and say what is. Neither imports
the other: `admin` and `server` hold both by these protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from magnetar.auth.identity import Identity
from magnetar.functions.config.function_config import FunctionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFunction:
    """A function as the catalogue keeps it."""

    tenant: str
    namespace: str
    name: str
    version: int
    """Grows with every update; an instance of another version is replaced."""
    config: FunctionConfig
    package: Path | None
    """The local copy of the user's code; None for a built-in function."""
    stopped: frozenset[int] = frozenset()
    """Instances that an operator stopped."""
    owner: Identity | None = None
    """Whose rights its code has; None: it was created without authentication."""

    @property
    def full_name(self) -> str:
        """`tenant/namespace/name`."""
        return f"{self.tenant}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class RaisedError:
    """An exception that an instance remembers."""

    text: str
    """Its traceback; for one of the user's code also the position of the message."""
    time_ms: int
    """When it was raised, Unix milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """What an instance is doing: the fields of Pulsar's FunctionInstanceStatusData."""

    instance: int
    running: bool
    state: str = ""
    """STARTING, RUNNING, STUCK, FAILED or STOPPED."""
    error: str = ""
    """Why it does not run, with the traceback; of a stuck one, its Python stack."""
    restarts: int = 0
    received: int = 0
    processed: int = 0
    """Messages that were processed without an exception."""
    user_exceptions: int = 0
    latest_user_exceptions: tuple[RaisedError, ...] = ()
    """The last ten, the oldest first."""
    system_exceptions: int = 0
    latest_system_exceptions: tuple[RaisedError, ...] = ()
    average_latency_ms: float = 0.0
    """Mean duration of a call; 0 before the first."""
    last_invocation_ms: int = 0
    """Unix milliseconds of the last call; 0 before the first."""
    pid: int = 0
    """Process id; 0 while there is no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsOfPeriod:
    """Counters of an instance, since its start or of one minute."""

    received: int = 0
    processed: int = 0
    system_exceptions: int = 0
    user_exceptions: int = 0
    average_latency_ms: float | None = None
    """None before the first call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStats:
    """What an instance has done: the fields of Pulsar's FunctionInstanceStatsData."""

    instance: int
    total: StatsOfPeriod = StatsOfPeriod()
    minute: StatsOfPeriod = StatsOfPeriod()
    """The last complete minute."""
    last_invocation_ms: int | None = None
    user_metrics: Mapping[str, float] = field(default_factory=dict)
    """The last values that the function recorded, by name."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of what an instance has written to its standard output and error."""

    begin: int
    """Bytes that were written before it."""
    end: int
    """Bytes that were written with it: where the next part begins."""
    data: bytes


@dataclass(frozen=True, slots=True)
class StateValue:
    """A value of a function's state."""

    value: bytes
    """A counter is 8 bytes, big-endian, with sign."""
    number: int | None
    """Value of a counter; None when it is none."""
    version: int
    """Grows by one with every change; the first is 0."""


class FunctionCatalogue(Protocol):
    """Which functions there shall be."""

    async def functions(self) -> list[StoredFunction]:
        """All functions, in any order."""
        ...

    async def changed(self) -> None:
        """Returns after anything has changed since the last call; at once when it has."""
        ...


class FunctionCredentials(Protocol):
    """Gives each process of a function what it shows to the broker."""

    def issue(self, function: StoredFunction) -> str:
        """A token with the rights of the function's owner; "" without authentication. Raises
        NoOwnerError."""
        ...

    def withdraw(self, token: str) -> None:
        """The process has ended: its token counts no more, and connections that show it are closed."""
        ...


class FunctionWorkers(Protocol):
    """The processes that run functions. An instance that does not answer has its last known figures."""

    async def status(self, function: StoredFunction) -> list[InstanceStatus]:
        """One for each instance that the function shall have, by its number."""
        ...

    async def stats(self, function: StoredFunction) -> list[InstanceStats]:
        """One for each instance that the function shall have, by its number."""
        ...

    def output(self, function: StoredFunction, instance: int, start: int) -> OutputPart:
        """What an instance has written from byte `start` on, as far as it is kept: the last 64 KiB."""
        ...

    async def restart(self, function: StoredFunction, instance: int | None) -> None:
        """Restarts an instance, or all with None; returns when they were told to end. Raises
        NoSuchInstanceError."""
        ...

    async def end(self, function: StoredFunction, *, forget: bool) -> None:
        """Ends all instances, which the catalogue has as stopped; with `forget` removes the state too.
        Raises StateFileError."""
        ...

    async def trigger(self, function: StoredFunction, topic: str | None, value: bytes) -> bytes | None:
        """Publishes `value` to an input topic, the only one by default, and returns the function's result;
        None when it has none. Raises TriggerError: nothing runs, no such topic, no result in 15 s."""
        ...

    async def state_get(self, function: StoredFunction, key: str) -> StateValue | None:
        """The value of a key; None when there is none."""
        ...

    async def state_put(self, function: StoredFunction, key: str, value: bytes) -> None:
        """Sets the value of a key."""
        ...
