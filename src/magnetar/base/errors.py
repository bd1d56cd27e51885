"""The root of the error tree.

    MagnetarError
    ├── ProtocolError            the peer sent bytes that are not legal (wire)
    ├── StorageError             bytes could not be kept or given back (bookie, ledger)
    │   ├── CorruptDataError     stored bytes fail their checksum: never served
    │   │   └── LostEntriesError which entries of a ledger those were
    │   ├── DiskFullError
    │   └── StorageFailedError   an fsync or write failed; the device is not trusted any more
    ├── LedgerError              BookKeeper's error semantics (ledger)
    ├── MetadataError            the metadata store refused or cannot be reached (metadata)
    ├── LogError                 a managed log or cursor cannot do what was asked (managedlog)
    ├── BrokerError              refused by the broker; carries the wire code (broker)
    ├── ClientError              a call of a broker or of its admin API failed (adminclient, client)
    └── StartupError             the process cannot start; message names cause and remedy (server)

Each room derives its own classes from the branch that is named here and maps them once, at its
boundary, to a wire code or an HTTP status.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.base.ids import LedgerId


class MagnetarError(Exception):
    """Every error that this package raises on purpose."""

    retriable = False
    """Whether the same call may succeed later without a change by the caller."""


class ProtocolError(MagnetarError):
    """The peer broke the protocol; its connection is closed with this reason."""


class StorageError(MagnetarError):
    """Bytes could not be stored or read."""


class CorruptDataError(StorageError):
    """Stored bytes fail their checksum. Names file, offset and, where known, ledger."""

    def __init__(self, path: str, offset: int, detail: str, ledger_id: LedgerId | None = None) -> None:
        ledger = "" if ledger_id is None else f", ledger {ledger_id}"
        super().__init__(f"corrupt data in {path} at byte {offset}{ledger}: {detail}")
        self.path = path
        self.offset = offset
        self.ledger_id = ledger_id


class LostRange(NamedTuple):
    """Entries of a ledger, `first_entry` to `last_entry`, inclusive; None: to the ledger's end."""

    ledger_id: LedgerId
    first_entry: int
    last_entry: int | None


class LostEntriesError(CorruptDataError):
    """Entries of a ledger that were written and cannot be read: `first_entry` to `last_entry`, inclusive.

    What is before and behind them is whole. `last_entry` is None when they reach to the ledger's end.
    """

    def __init__(
        self,
        path: str,
        offset: int,
        detail: str,
        lost: LostRange,
        *,
        remedy: str = "`magnetar doctor storage` shows all",
        certain: bool = True,
    ) -> None:
        """`remedy`: what an operator can do. `certain`: the entries will not reappear; otherwise consumers
        skip them only when an operator gave up these very entries."""
        ledger_id, first_entry, last_entry = lost
        entries = f"{first_entry} to {'the end' if last_entry is None else last_entry}"
        super().__init__(
            path,
            offset,
            f"{detail}; entries {entries} are lost, no others ({remedy})"
            + ("; auto_skip_non_recoverable_data leads consumers past them" if certain else ""),
            ledger_id,
        )
        self.certain = certain
        self.first_entry = first_entry
        self.last_entry = last_entry


class DiskFullError(StorageError):
    """The device is full; the message names the folder."""

    retriable = True


def disk_full(error: BaseException) -> DiskFullError | None:
    """The full disk that caused `error`; None when it was something else."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DiskFullError):
        cause = cause.__cause__
    return cause


class StorageFailedError(StorageError):
    """A write or sync failed. It is never retried: the kernel may have dropped the pages."""


class LedgerError(MagnetarError):
    """A ledger operation failed, with BookKeeper's meaning."""


class MetadataError(MagnetarError):
    """The metadata store refused an operation or cannot be reached."""


class LogError(MagnetarError):
    """A managed log or one of its cursors cannot do what was asked."""


class BrokerError(MagnetarError):
    """The broker refuses a request."""


class ClientError(MagnetarError):
    """A call of a broker failed. The message names what, where, and what to do about it."""


class StartupError(MagnetarError):
    """The process cannot start. The message is one line: the cause and the remedy."""
