"""Proxies, which act for their clients: checks pairs of roles.

A proxy sends its own credential and names its client's role, the original principal. An action must be
allowed to both roles, so that a proxy can neither lend its rights nor use more than those of its clients.

Source: Pulsar's authorization service, `isValidOriginalPrincipal`.
"""

from __future__ import annotations

from magnetar.auth.errors import AuthorizationError


def check_original(role: str, original: str, proxy_roles: frozenset[str]) -> None:
    """Raises AuthorizationError unless a connection of `role` may act for `original` ("": for no other
    role)."""
    if role in proxy_roles:
        if not original:
            raise AuthorizationError(f"role {role!r} is a proxy's and must name its client's role")
        if original in proxy_roles:
            raise AuthorizationError(f"role {role!r} may not speak for another proxy")
    elif original not in ("", role):
        raise AuthorizationError(f"role {role!r} may not speak for others")
