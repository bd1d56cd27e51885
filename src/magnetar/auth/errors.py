"""The two refusals: not authenticated, and not authorized."""

from __future__ import annotations

from magnetar.base.errors import BrokerError


class AuthenticationError(BrokerError):
    """Credentials are missing, wrong or expired. The message holds nothing of them."""


class AuthorizationError(BrokerError):
    """The role may not do what it asked. The message tells role and action, not what exists."""
