"""Writes a snapshot that has the same rows in other files.

pyiceberg can append, overwrite and delete, but not replace. A reader that follows a table by its snapshots
ignores the files of a `replace`, but would read the rows of an `overwrite` again.
"""

from __future__ import annotations

from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles


class ReplaceFiles(_OverwriteFiles):
    """Overwrites files in a snapshot of the kind `replace`, which says that no row has changed."""

    def __init__(self, transaction: Transaction, notes: dict[str, str]) -> None:
        """`notes`: further properties of the snapshot."""
        super().__init__(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=transaction._table.io,
            snapshot_properties=notes,
        )

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        made = super()._summary(snapshot_properties or {}).model_dump()
        return Summary(**{**made, "operation": Operation.REPLACE})
