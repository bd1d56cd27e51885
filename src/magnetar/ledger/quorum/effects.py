"""The requests of this room's cores to their driver, which carries them out and returns the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import TypeAlias

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class SendAdds:
    """Add these entries at one bookie; each is answered by `added`."""

    bookie: str
    index: int
    """Index of the bookie in the ensemble, returned with the answer."""
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    recovery: bool = False
    """Allowed although the ledger is fenced."""


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read one entry, or the last one (-1), at one bookie; answered by `read`."""

    bookie: str
    index: int
    entry_id: int
    fence: bool = False


@dataclass(frozen=True, slots=True)
class SendForce:
    """Make the ledger's entries at one bookie durable; answered by `forced`."""

    bookie: str
    index: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata again; answered by `metadata_read`."""


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Replace the ledger's metadata if it has this version.

    Answered by `metadata_written`, or by `metadata_conflict` when the version differs or the outcome is
    unknown: then it is read and compared.
    """

    metadata: LedgerMetadata
    expected_version: int


@dataclass(frozen=True, slots=True)
class ChooseBookies:
    """Find bookies for these places, none of `exclude`; answered by `bookies_chosen`."""

    failed: Mapping[int, str]
    """The failed bookies by index in the ensemble."""
    exclude: frozenset[str]


@dataclass(frozen=True, slots=True)
class Advance:
    """Every entry up to and including this one is confirmed."""

    last_entry: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The ledger is closed; its metadata says so."""

    end: LedgerEnd


@unique
class Failure(Enum):
    """Why a writer or a recovery is over."""

    FENCED = "fenced"
    """Another client recovers or has recovered the ledger: unconfirmed entries may be kept or not."""
    NOT_ENOUGH_BOOKIES = "not-enough-bookies"
    UNAUTHORIZED = "unauthorized"
    UNREADABLE = "unreadable"
    """Too many bookies gave no certain answer, so the end of the ledger is unknown."""
    GONE = "gone"
    """The ledger was deleted."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The core is over; `reason` says what to do about it."""

    failure: Failure
    reason: str


Effect: TypeAlias = (
    SendAdds | SendRead | SendForce | ReadMetadata | WriteMetadata | ChooseBookies | Advance | Closed | Failed
)
