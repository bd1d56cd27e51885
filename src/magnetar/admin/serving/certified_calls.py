"""Connections of HTTPS whose clients may show a certificate."""

from __future__ import annotations

import asyncio

from magnetar.admin.access.access import STATE_CERTIFICATE_ROLE
from magnetar.admin.serving.loop_server import CallProtocol
from magnetar.auth.identity import shown_role


class CertifiedCalls(CallProtocol):
    """Passes the role in the client's certificate to the application."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        role = shown_role(transport.get_extra_info)
        if role is not None:
            self.app_state = {**self.app_state, STATE_CERTIFICATE_ROLE: role}
