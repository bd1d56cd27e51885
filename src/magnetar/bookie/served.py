"""What goes between the rules of a bookie (`serving.py`) and its driver: writes, answers, what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from magnetar.wire.bookkeeper.requests import Read
from magnetar.wire.bookkeeper.responses import Response


class StoredEntries(Protocol):
    """What is durable."""

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry of a ledger; -1 when there is none."""

    def entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry; None when there is certainly none. Raises CorruptDataError."""


class ListedEntries(StoredEntries, Protocol):
    """What is durable, for bookies that also list it."""

    def entry_ranges(self, ledger_id: int) -> Sequence[range]:
        """Which entries there are: ascending, not touching, none empty."""


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """What a bookie must know of a ledger after a restart."""

    ledger_id: int
    master_key: bytes
    fenced: bool
    lac_blob: bytes | None = None
    """The explicit last add confirmed."""
    limbo: bool = False
    """Whether entries or the fence may have been lost; the master key is then not known, and empty."""


@dataclass(frozen=True, slots=True)
class Write:
    """Make this durable; `durable(ticket)` tells that it is, `failed(ticket, ...)` that it never will be."""

    ticket: int
    ledger_id: int
    master_key: bytes
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    fence: bool
    lac_blob: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this to whoever asked."""

    asker: object
    response: Response


@dataclass(frozen=True, slots=True)
class Wait:
    """Call `wait_over` with these after so many milliseconds."""

    asker: object
    request: Read
    timeout_ms: int


Output: TypeAlias = Write | Answer | Wait
