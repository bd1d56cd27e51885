"""The ports under which a broker is reached, for look-ups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listeners:
    """0: there is none."""

    plain_port: int = 0
    """0 also before it is known: then the port of the connection that asks is told."""
    tls_port: int = 0
    https_port: int = 0

    def plain_url(self, host: str, own_port: int) -> str:
        """`own_port`: of the connection that asks."""
        return f"pulsar://{host}:{self.plain_port or own_port}"

    def tls_url(self, host: str) -> str | None:
        """None: TLS is not offered."""
        return f"pulsar+ssl://{host}:{self.tls_port}" if self.tls_port else None
