"""The two errors of this room: not authenticated, and not authorized."""

from __future__ import annotations

from magnetar.base.errors import BrokerError


class AuthenticationError(BrokerError):
    """Credentials are missing, wrong or expired. The message shows no part of them."""


class AuthorizationError(BrokerError):
    """The role may not do the action. The message names role and action, but not whether the object
    exists."""
