"""The metadata store: a small tree of versioned values through which all roles coordinate.

Backends store the tree in memory, an embedded file, ZooKeeper or etcd. All of them keep this contract;
`tests/unit/metadata` checks it on each.

Paths are absolute and slash-separated, without a trailing slash: `/admin/policies/public`.
Source: Pulsar's contract for its backends (`MetadataStore`, `MetadataStoreExtended`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from magnetar.base.errors import MetadataError

ANY_VERSION: Final = None
"""`expected_version` of a write that ignores the present version."""

MUST_NOT_EXIST: Final = -1
"""`expected_version` of a write that creates."""

ANY_CREATION: Final = 0
"""`expected_creation` of a removal that takes the value whenever it was made."""


class BadVersionError(MetadataError):
    """The value's version is not the expected one, or it exists though it must not."""

    def __init__(self, path: str, expected: int | None, actual: int | None) -> None:
        differs = expected is None or expected != actual
        found = f"expected version {expected}, found {actual}" if differs else "it was deleted and made anew"
        super().__init__(f"{path}: {found}")
        self.path = path
        self.expected = expected
        self.actual = actual


class NotFoundError(MetadataError):
    """The path holds no value."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no such value")
        self.path = path


class HasChildrenError(MetadataError):
    """A value with children cannot be deleted."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: has children")
        self.path = path


class StoreClosedError(MetadataError):
    """The store was closed, or its session is lost for good."""


class StoreUnreachableError(MetadataError):
    """The store cannot be reached; the call certainly had no effect."""

    retriable = True


class OutcomeUnknownError(MetadataError):
    """The connection was lost, and whether the write took effect could not be found out."""


class Stat(NamedTuple):
    """The properties of a value."""

    path: str
    """Path of the value; for a sequential put with its counter."""
    version: int
    """0 at creation, one more at each put."""
    created_ms: int
    """Unix milliseconds; 0 where the backend keeps no times."""
    modified_ms: int
    """Unix milliseconds; 0 where the backend keeps no times."""
    ephemeral: bool
    """Whether the value vanishes with the session that created it."""
    created_by_self: bool
    """Whether this store's session created the value. Certain for ephemeral values; for others only in stores
    with a single writer."""
    creation: int = ANY_CREATION
    """Tells this value from an earlier or later one of the path, whose versions begin at 0 too: a number of
    the backend; ANY_CREATION where it is not known. Stores within the process use milliseconds."""


@dataclass(frozen=True, slots=True)
class Value:
    """A stored value."""

    data: bytes
    stat: Stat


class Change(Enum):
    """What happened at a path."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    CHILDREN_CHANGED = "children-changed"
    """A direct child was created or deleted."""


class Notification(NamedTuple):
    """One change, delivered to every watcher whose prefix covers the path."""

    change: Change
    path: str


@dataclass(frozen=True, slots=True)
class Put:
    """One write of a transaction: see `MetadataStore.put`."""

    path: str
    data: bytes
    expected_version: int | None = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """One removal of a transaction: see `MetadataStore.delete`."""

    path: str
    expected_version: int | None = ANY_VERSION
    expected_creation: int = ANY_CREATION


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a transaction: its path has a value of this version. Nothing is written there, and no
    watcher hears of it.

    BadVersionError is raised where it does not hold. A value that was deleted and made anew may have the same
    version: choose a path whose value is not deleted while the version is known.
    """

    path: str
    expected_version: int
    """As in `Stat.version`, 0 or more."""

    def __post_init__(self) -> None:
        assert self.expected_version >= 0, "what is not there has no version"


Operation: TypeAlias = Put | Delete | Check

OPERATIONS_MAX: Final = 60
"""Most operations of one transaction: etcd takes 128 comparisons, of which a deletion needs two."""


def check_count(operations: Sequence[Operation]) -> None:
    """Raises MetadataError for more than OPERATIONS_MAX."""
    if len(operations) > OPERATIONS_MAX:
        raise MetadataError(
            f"{operations[0].path} and others: a transaction has {OPERATIONS_MAX} operations at most,"
            f" not {len(operations)}"
        )


class SessionEvent(Enum):
    """A change of the session to which ephemeral values belong."""

    CONNECTION_LOST = "connection-lost"
    """The store cannot be reached; the session may have ended or not."""
    RECONNECTED = "reconnected"
    """The store is reached again in the same session: ephemeral values never vanished."""
    SESSION_LOST = "session-lost"
    """The session ended without `close`: its ephemeral values have vanished or soon will."""
    SESSION_RENEWED = "session-renewed"
    """A new session has begun, without the ephemeral values of the last one."""


class MetadataStore(Protocol):
    """A tree of versioned values. Every write is durable when its call returns."""

    async def get(self, path: str) -> Value | None:
        """The value at `path`, or None. Sees every write that this store has returned from."""

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the direct children of `path`, sorted; empty when there are none.

        A child without a value is listed too when it has children of its own.
        """

    async def exists(self, path: str) -> bool:
        """Whether a value is stored at `path` itself."""

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        """Stores `data`; parents need not exist.

        `ephemeral`: the value vanishes with the session. `sequential` appends a ten-digit counter to the
        path, higher than any before below the same parent. Raises BadVersionError when the version differs
        from `expected_version`.
        """

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        """Removes one value. Raises NotFoundError, BadVersionError, HasChildrenError.

        `expected_creation`: `Stat.creation` of the value that is meant. One that was made since then may have
        the same version; it stays, and BadVersionError is raised. ZooKeeper cannot compare it in the same
        step: its store looks first, and a value that is replaced between the look and the removal goes.
        """

    async def delete_recursive(self, path: str) -> None:
        """Removes the value and everything below; not an error when nothing is there."""

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Applies all operations or none; returns a Stat for each Put and None for the others, in order.

        At most OPERATIONS_MAX operations. Raises what the first failing operation would raise alone.
        """

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        """Calls back, on the event loop, for every change at or below `prefix`; returns the cancel.

        A change is announced after the write is durable and before the writer's call returns. Changes by
        other processes while a shared store had no connection may not be announced: `watch_session` tells
        when to read again.
        """

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Calls back, on the event loop, for each change of the session; returns the cancel.

        A store within the process has one session while it is open; the session is lost when the store fails.
        """

    async def sync(self) -> None:
        """Waits until reads of this store see every write, of any process, that had returned before this
        call."""

    async def close(self) -> None:
        """Ends the session: its ephemeral values vanish. Further calls raise StoreClosedError."""


async def delete_as_read(store: MetadataStore, path: str, stat: Stat) -> None:
    """Removes the value that was read with `stat`: no later one, though its versions begin at 0 again.

    Raises NotFoundError, BadVersionError, HasChildrenError, MetadataError.
    """
    await store.delete(path, expected_version=stat.version, expected_creation=stat.creation)
