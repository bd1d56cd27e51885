"""Errors of the tour."""

from __future__ import annotations

from magnetar.base.errors import MagnetarError


class DemoError(MagnetarError):
    """The tour cannot go on. The message says what happened and where to look."""
