"""What the processes of functions show to the broker: nothing, or a token with the rights of their owner."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.auth.function_tokens import FunctionTokens
from magnetar.functions.errors import NoOwnerError
from magnetar.functions.ports import StoredFunction


class NoCredentials:
    """Implements FunctionCredentials for a broker without authentication."""

    def issue(self, function: StoredFunction) -> str:
        """See FunctionCredentials."""
        return ""

    def withdraw(self, token: str) -> None:
        """See FunctionCredentials."""


class OwnersCredentials:
    """Implements FunctionCredentials for a broker with authentication."""

    def __init__(self, withdrawn: Callable[[], object]) -> None:
        """`withdrawn`: closes connections whose credentials count no more."""
        self.tokens = FunctionTokens()
        """For the guard."""
        self._withdrawn = withdrawn

    def issue(self, function: StoredFunction) -> str:
        """See FunctionCredentials. Raises NoOwnerError."""
        if function.owner is None:
            raise NoOwnerError(function.full_name)
        return self.tokens.issue(function.owner, function.full_name)

    def withdraw(self, token: str) -> None:
        """See FunctionCredentials."""
        self.tokens.withdraw(token)
        # What the code has started beside its process, or told others, may still be connected.
        self._withdrawn()
