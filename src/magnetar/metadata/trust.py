"""Whether an object that the metadata does *not* name may be deleted.

That is right only while the metadata is complete and the newest. A copy that was restored from a backup does
not name later objects, and a copy that belongs to other messages names none of ours. Code that deletes
because of an absence asks here first, each time.
"""

from __future__ import annotations


class MetadataTrust:
    """The reasons for doubt, shared by all code that deletes unnamed objects. Starts without doubt."""

    def __init__(self) -> None:
        self._doubts: dict[str, str] = {}

    @property
    def doubt(self) -> str | None:
        """Why unnamed objects must be kept, as a text for operators; None: they may be deleted."""
        return "; ".join(self._doubts.values()) or None

    @property
    def is_trusted(self) -> bool:
        """Whether objects that the metadata does not name may be deleted."""
        return not self._doubts

    def doubted(self, source: str, reason: str) -> None:
        """Notes a reason for doubt that `source` found; it replaces an earlier one of the same source."""
        self._doubts[source] = reason

    def cleared(self, source: str) -> None:
        """Removes the reason of `source`."""
        self._doubts.pop(source, None)
