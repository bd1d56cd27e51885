"""What the cores of this room ask their driver to do. A driver does it and hands the outcome back."""

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
    """Of the bookie in the ensemble, given back with the answer."""
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    recovery: bool = False
    """Also where the ledger is fenced."""


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read one entry, or the last one (-1), at one bookie; answered by `read`."""

    bookie: str
    index: int
    entry_id: int
    fence: bool = False


@dataclass(frozen=True, slots=True)
class SendForce:
    """Make durable at one bookie what it has of the ledger; answered by `forced`."""

    bookie: str
    index: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata anew; answered by `metadata_read`."""


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Replace the ledger's metadata where it has this version.

    Answered by `metadata_written`, or by `metadata_conflict` when the version is another or the outcome is
    not known: then it is read and compared.
    """

    metadata: LedgerMetadata
    expected_version: int


@dataclass(frozen=True, slots=True)
class ChooseBookies:
    """Find bookies for these places, none of `exclude`; answered by `bookies_chosen`."""

    failed: Mapping[int, str]
    """By index in the ensemble, who failed there."""
    exclude: frozenset[str]


@dataclass(frozen=True, slots=True)
class Advance:
    """Every entry up to and with this one is confirmed."""

    last_entry: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The ledger is closed; its metadata says so."""

    end: LedgerEnd


@unique
class Failure(Enum):
    """Why a writer or a recovery is over."""

    FENCED = "fenced"
    """Another client recovers or has recovered the ledger: what was not confirmed may be kept or not."""
    NOT_ENOUGH_BOOKIES = "not-enough-bookies"
    UNAUTHORIZED = "unauthorized"
    UNREADABLE = "unreadable"
    """Too many bookies did not answer, or not for certain, to tell where the ledger ends."""
    GONE = "gone"
    """The ledger was deleted."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It is over; `reason` says what to do about it."""

    failure: Failure
    reason: str


Effect: TypeAlias = (
    SendAdds | SendRead | SendForce | ReadMetadata | WriteMetadata | ChooseBookies | Advance | Closed | Failed
)
