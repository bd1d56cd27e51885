"""Which cursor of which log, and where its small state lies."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.base.names import encode_local
from magnetar.managedlog.log_metadata import log_path


class CursorKey(NamedTuple):
    """Which cursor: unique within a cluster."""

    log_name: str
    name: str

    @property
    def path(self) -> str:
        """Path of its value in the metadata store."""
        return f"{log_path(self.log_name)}/{encode_local(self.name)}"

    def __str__(self) -> str:
        return f"{self.log_name} cursor {self.name!r}"
