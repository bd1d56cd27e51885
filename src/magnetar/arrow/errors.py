"""Errors of decoding values."""

from __future__ import annotations

from magnetar.base.errors import MagnetarError


class ValueSchemaError(MagnetarError):
    """A schema cannot be read, or values of one schema cannot become columns of another."""
