"""The interface between a bookie's rules (`serving.py`) and its driver: writes, answers, stored entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from magnetar.base.ids import LedgerId
from magnetar.wire.bookkeeper.requests import Read
from magnetar.wire.bookkeeper.responses import Response


class StoredEntries(Protocol):
    """The durable entries."""

    def last_entry(self, ledger_id: LedgerId) -> int:
        """The highest entry of a ledger; -1 when there is none."""

    def entry(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """An entry; None when it certainly does not exist. Raises CorruptDataError."""


class ListedEntries(StoredEntries, Protocol):
    """The durable entries, for bookies that also list them."""

    def entry_ranges(self, ledger_id: LedgerId) -> Sequence[range]:
        """The entries of a ledger: ascending, separate ranges, none empty."""


@dataclass(frozen=True, slots=True)
class ServedLedger:
    """State of a ledger that survives a restart."""

    ledger_id: LedgerId
    master_key: bytes
    fenced: bool
    lac_blob: bytes | None = None
    """The explicit last add confirmed."""
    limbo: bool = False
    """Whether entries or the fence may have been lost; then the master key is unknown, and empty."""


@dataclass(frozen=True, slots=True)
class Write:
    """Make this durable; `durable(ticket)` reports success, `failed(ticket, ...)` that it never will be."""

    ticket: int
    ledger_id: LedgerId
    master_key: bytes
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    fence: bool
    lac_blob: bytes | None = None


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """Send this response to the client of the request."""

    asker: object
    response: Response


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A read waits: call `wait_over` with this after so many milliseconds, unless it is `Waited` before.

    Two reads may ask for the same, so this is equal to itself only.
    """

    asker: object
    request: Read
    """Asked again, it waits no more."""
    timeout_ms: int | None
    """None: as long as it takes."""


@dataclass(frozen=True, slots=True)
class Waited:
    """A read need not wait any longer: ask `read` again when its client can take the answer."""

    wait: Wait


Output: TypeAlias = Write | ServedAnswer | Wait | Waited
