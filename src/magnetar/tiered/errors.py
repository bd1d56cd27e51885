"""What goes wrong with object stores.

StorageError
└── StoreError                 the store refused or could not be reached; says what to do next
    ├── MissingObjectError     an object that a list of ledgers names is not there
    └── StoreSetupError        the URL, its library or the credentials are wrong: no use in trying again
CorruptDataError
└── DamagedObjectError         an object's bytes are not what was written
"""

from __future__ import annotations

from magnetar.base.errors import CorruptDataError, StorageError


class StoreError(StorageError):
    """The store refused or could not be reached. `retriable`: the same call may succeed later."""

    retriable = True

    def __init__(self, what: str, detail: str, next_step: str) -> None:
        super().__init__(f"{what}: {detail}; {next_step}")
        self.detail = detail


class MissingObjectError(StoreError):
    """An object that should be there is not."""

    retriable = False


class StoreSetupError(StoreError):
    """The store cannot work as it is configured."""

    retriable = False


class DamagedObjectError(CorruptDataError):
    """An object's bytes fail their check."""

    def __init__(self, name: str, detail: str, ledger_id: int | None = None) -> None:
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
