"""Whether an object that the metadata does *not* name may be deleted.

That is right only while the metadata is complete and the newest. A copy that was restored from a backup does
not name later objects, and a copy that belongs to other messages names none of ours. Code that deletes
because of an absence asks here first, each time.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.errors import MetadataError


class MetadataTrust:
    """The reasons for doubt, shared by all code that deletes unnamed objects. Starts without doubt of its
    own."""

    def __init__(self, told: Callable[[], str] = str) -> None:
        """`told`: returns the doubt of the process that has the metadata, as it is now, "" for none; what it
        raises, a MetadataError, is a doubt too."""
        self._doubts: dict[str, str] = {}
        self._told = told

    @property
    def doubt(self) -> str | None:
        """Why unnamed objects must be kept, as a text for operators; None: they may be deleted."""
        try:
            told = self._told()
        except MetadataError as error:
            told = str(error)
        return "; ".join(filter(None, (*self._doubts.values(), told))) or None

    @property
    def is_trusted(self) -> bool:
        """Whether objects that the metadata does not name may be deleted."""
        return self.doubt is None

    def doubted(self, source: str, reason: str) -> None:
        """Notes a reason for doubt that `source` found; it replaces an earlier one of the same source."""
        self._doubts[source] = reason

    def cleared(self, source: str) -> None:
        """Removes the reason of `source`."""
        self._doubts.pop(source, None)
