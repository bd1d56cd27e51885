"""Errors of object stores.

StorageError
└── StoreError              the store refused or could not be reached; says what to do next
    ├── MissingObjectError  an object that a list of ledgers names is not there
    ├── ReadOnlyStoreError  the store is another installation's: nothing may be written or deleted
    ├── SwapLostError       another process has changed a small object meanwhile
    └── StoreSetupError     the URL, its library or the credentials are wrong: a retry does not help
CorruptDataError
└── DamagedObjectError      an object's bytes are not what was written
"""

from __future__ import annotations

from magnetar.base.errors import CorruptDataError, StorageError
from magnetar.base.ids import LedgerId


class StoreError(StorageError):
    """The store refused or could not be reached. `retriable`: the same call may succeed later."""

    retriable = True

    def __init__(self, what: str, detail: str, next_step: str) -> None:
        super().__init__(f"{what}: {detail}; {next_step}")
        self.detail = detail


class MissingObjectError(StoreError):
    """An object that must exist does not."""

    retriable = False


class SwapLostError(StoreError):
    """A small object has changed since the caller read it; nothing was written."""

    retriable = False


class ReadOnlyStoreError(StoreError):
    """The store belongs to another installation or to a copy of this one: it is only read."""

    retriable = False

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"the store {url} is read-only here",
            reason,
            "give this installation another offload_url; or, when the other one is gone for good, take the"
            " store over: magnetar offload claim",
        )


class StoreSetupError(StoreError):
    """The configuration of the store is wrong."""

    retriable = False


class DamagedObjectError(CorruptDataError):
    """An object's bytes fail their check."""

    def __init__(self, name: str, detail: str, ledger_id: LedgerId | None = None) -> None:
        super().__init__(name, 0, detail, ledger_id)


class UnreadableCopyError(StorageError):
    """Entries of a ledger cannot be read from its copy now."""

    def __init__(self, text: str, *, retriable: bool) -> None:
        super().__init__(text)
        self.retriable = retriable


class DamagedCopyError(UnreadableCopyError):
    """Entries of a ledger cannot be read from its copy because it is damaged."""

    def __init__(self, text: str) -> None:
        super().__init__(text, retriable=False)
