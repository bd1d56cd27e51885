"""Whether the metadata may be believed when it does *not* name something.

Deleting objects that the metadata does not name is right only while it is complete and the newest. A copy
that was restored from a backup, or one that belongs to other messages, does not name later objects, or never
did. Code that deletes because of an absence asks here first, each time.
"""

from __future__ import annotations


class MetadataTrust:
    """Shared by all who delete what nothing names. Starts as "may be believed"."""

    def __init__(self) -> None:
        self._doubts: dict[str, str] = {}

    @property
    def doubt(self) -> str | None:
        """Why an absence says nothing, for people; None: metadata may be believed."""
        return "; ".join(self._doubts.values()) or None

    @property
    def is_trusted(self) -> bool:
        """Whether what metadata does not name may be deleted."""
        return not self._doubts

    def doubted(self, source: str, reason: str) -> None:
        """`source` found a reason for doubt; it replaces an earlier one of the same source."""
        self._doubts[source] = reason

    def cleared(self, source: str) -> None:
        """`source` has none any more."""
        self._doubts.pop(source, None)
