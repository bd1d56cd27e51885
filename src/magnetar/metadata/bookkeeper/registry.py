"""The records of bookies in the metadata store: identities, addresses, cookies.

This is the contract; `tree_registry.py` implements it in BookKeeper's tree on any `MetadataStore`. The other
half, ledgers and their metadata, is `magnetar.ledger.registry`.

Source: BookKeeper's registration and cookies.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId

BOOKIE_ENDPOINT: Final = "bookie"
"""Id of the endpoint that speaks the bookie protocol."""

BOOKIE_PROTOCOL: Final = "bookie-rpc"
"""Name of that protocol in an endpoint."""

_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9:_.\-]+")
_RESERVED_IDS: Final = frozenset({"readonly"})


class BookieIdError(MetadataError):
    """The id has characters that a bookie's id may not have, or is a reserved one."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(f"{bookie_id!r} cannot be the id of a bookie")
        self.bookie_id = bookie_id


class BookieIdInUseError(MetadataError):
    """Another process has registered as this bookie, and its session has not ended."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(f"bookie {bookie_id} is registered by another process")
        self.bookie_id = bookie_id


class ClusterNotInitializedError(MetadataError):
    """The tree has no layout or instance id: the cluster was not initialized."""


def check_bookie_id(bookie_id: str) -> None:
    """Raises BookieIdError unless letters, digits, colons, dashes, underscores and dots make it up."""
    if not _BOOKIE_ID.fullmatch(bookie_id) or bookie_id in _RESERVED_IDS:
        raise BookieIdError(bookie_id)


@dataclass(frozen=True, slots=True)
class BookieEndpoint:
    """One address of a bookie."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredBookie:
    """The record that a bookie publishes while it is registered."""

    bookie_id: str
    endpoints: tuple[BookieEndpoint, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, bookie_id: str, host: str, port: int) -> RegisteredBookie:
        """A bookie with a single endpoint, the one that ledger clients use."""
        return cls(bookie_id, (BookieEndpoint(BOOKIE_ENDPOINT, port, host, BOOKIE_PROTOCOL),))

    def address(self) -> tuple[str, int] | None:
        """Host and port that ledger clients connect to; None when neither endpoints nor the id name them.

        A bookie that publishes no endpoints has an id of the form `host:port`.
        """
        for endpoint in self.endpoints:
            if endpoint.id == BOOKIE_ENDPOINT:
                return endpoint.host, endpoint.port
        host, colon, port = self.bookie_id.rpartition(":")
        if colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            return host, int(port)
        return None


ListBookies: TypeAlias = Callable[[], Awaitable["LiveBookies"]]
"""Returns the bookies that are registered now. Raises MetadataError."""


@dataclass(frozen=True, slots=True)
class LiveBookies:
    """The bookies that are registered now."""

    writable: frozenset[str]
    read_only: frozenset[str]
    """Bookies that serve reads but take no entries; while a bookie changes over it may be in both sets."""

    def all(self) -> frozenset[str]:
        """All bookies that can be read from."""
        return self.writable | self.read_only


@dataclass(frozen=True, slots=True)
class Cookie:
    """Which disks belong to a bookie: kept in the store and on each of the disks.

    A bookie whose disks do not match its cookie must not start. It may have lost entries; it would answer
    that they do not exist, and recovery relies on such answers.
    """

    bookie_id: str
    journal_folders: tuple[str, ...]
    ledger_folders: tuple[str, ...]
    instance_id: str | None
    """Instance id of the cluster; None in cookies of early releases."""
    index_folders: tuple[str, ...] | None = None
    """None: the same folders as `ledger_folders`."""


class BookieRegistry(Protocol):
    """Registrations, cookies and the instance id of one cluster.

    All calls raise MetadataError when the store refuses or cannot be reached.
    """

    async def instance_id(self) -> str:
        """Id of the cluster (a UUID). Raises ClusterNotInitializedError."""

    async def register(self, bookie: RegisteredBookie, *, read_only: bool = False) -> None:
        """Makes the bookie visible, or moves it between writable and read-only; durable on return.

        A change of `read_only` first adds the new place, then removes the old one, so that the bookie is
        always found. The registration lives as long as the store's session; after a lost session it is
        renewed automatically with the next one. Raises BookieIdError; BookieIdInUseError when another session
        holds the id (it may be that of this bookie's own previous process: try again within its timeout).
        """

    async def unregister(self, bookie_id: str) -> None:
        """Takes the registration back; not an error when there is none."""

    async def bookies(self) -> LiveBookies:
        """The registered bookies."""

    def watch_bookies(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back, on the event loop, when `bookies` may answer differently; returns the cancel.

        It may call without need, and does after each reconnection.
        """

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        """The record of a registered bookie; None when it is not registered.

        With `RegisteredBookie.address` this is how an id becomes host and port.
        """

    async def cookie(self, bookie_id: str) -> tuple[Cookie, int] | None:
        """The cookie and its version; None when there is none. Raises MetadataError for a damaged one."""

    async def put_cookie(self, cookie: Cookie, *, expected_version: int) -> int:
        """Stores the cookie and returns its version.

        `expected_version` is MUST_NOT_EXIST or the version that `cookie` returned. Raises BadVersionError.
        """

    async def delete_cookie(self, bookie_id: str, *, expected_version: int) -> None:
        """Deletes a bookie's cookie: the bookie is gone for good. Raises NotFoundError, BadVersionError."""

    async def generation(self, bookie_id: str) -> int | None:
        """The generation of the metadata for this bookie: an older copy has a lower number.

        None when the metadata does not name the bookie.
        """

    async def raise_generation(self, bookie_id: str, seen: int) -> int:
        """Makes the metadata newer than every copy made so far, if the bookie is in charge of that.

        `seen`: the generation that the caller has checked. Raises BadVersionError when the generation is
        another one by now, NotFoundError.
        """

    def connection_id(self) -> int:
        """A number that changes after each interruption of the connection to the store: all answers received
        under one number belong to one session."""

    def doubt(self) -> str:
        """Why what the metadata does not name may still exist, as the broker reports; empty: no reason."""

    async def known_bookies(self) -> frozenset[str]:
        """Every bookie that has a cookie, alive or not."""

    async def ledger_exists(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger exists; certain, since it sees all writes that ended before the call."""

    def ledger_ids(self) -> AsyncIterator[LedgerId]:
        """Every ledger, in no order; a ledger made or deleted meanwhile may be listed or not.

        An error ends the iteration with an exception: ledgers not listed by then may exist.
        """
