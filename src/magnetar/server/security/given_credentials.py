"""Loads credentials where a process has any. Imports what that needs only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.server.security.credential_files import BrokerCredentials
    from magnetar.server.settings.config import StandaloneConfig


def given_credentials(config: StandaloneConfig) -> BrokerCredentials | None:
    """None where there is neither TLS nor authentication, and so nothing to load. Raises StartupError."""
    if not config.authentication and config.tls_certificate is None:
        return None
    from magnetar.server.security.credential_files import BrokerCredentials

    return BrokerCredentials(config)
