"""What the cursor of compaction names: the compacted ledger, and up to where it stands for the log. Pure.

Both are properties of the cursor and change in one durable step. Where only the ledger is named, as Pulsar
leaves it, the horizon is the cursor's mark-delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.base.ids import LedgerId, Position

COMPACTION_CURSOR: Final = "__compaction"
"""Cursor that holds horizon and compacted ledger (Pulsar's name)."""
LEDGER_PROPERTY: Final = "CompactedTopicLedger"
"""Its property with the id of the compacted ledger (Pulsar's name)."""
_HORIZON_LEDGER: Final = "CompactionHorizonLedger"
_HORIZON_ENTRY: Final = "CompactionHorizonEntry"


class NamedLedger(NamedTuple):
    """A result of a compaction, as the cursor keeps it."""

    ledger_id: LedgerId
    """The compacted ledger."""
    horizon: Position
    """The last entry of the log that it stands for."""

    @classmethod
    def of(cls, properties: Mapping[str, int], mark_delete: Position) -> NamedLedger | None:
        """What a cursor with these properties names; None: nothing was compacted."""
        ledger_id = properties.get(LEDGER_PROPERTY)
        if ledger_id is None:
            return None
        ledger = LedgerId(properties.get(_HORIZON_LEDGER, mark_delete.ledger_id))
        return cls(
            LedgerId(ledger_id), Position(ledger, properties.get(_HORIZON_ENTRY, mark_delete.entry_id))
        )

    def properties(self) -> dict[str, int]:
        """What is to be kept."""
        return {
            LEDGER_PROPERTY: self.ledger_id,
            _HORIZON_LEDGER: self.horizon.ledger_id,
            _HORIZON_ENTRY: self.horizon.entry_id,
        }
