"""TLS contexts of listeners, which are replaced when their files change."""

from __future__ import annotations

import socket
import ssl


class ServedContext(ssl.SSLContext):
    """A TLS context built from one state of the files."""

    trusted: frozenset[str] = frozenset()
    """Fingerprints of the authorities' certificates that sign clients' certificates."""


class RenewedContext(ssl.SSLContext):
    """The permanent context of a listener, or of connections to a server, which gives each new connection the
    newest files.

    Open connections keep their context. TLS sessions of an old context cannot be resumed.
    """

    current: ssl.SSLContext
    """The context of new connections."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext`; uses `current`. Event loops start TLS by this method only."""
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """See `ssl.SSLContext`; uses `current`."""
        return self.current.wrap_socket(
            sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, server_hostname, session
        )


def renewed(context: ssl.SSLContext, *, server_side: bool = True) -> RenewedContext:
    """A RenewedContext whose first `current` is this context."""
    made = RenewedContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    # What asks the permanent one hears what holds for connections.
    made.check_hostname, made.verify_mode = context.check_hostname, context.verify_mode
    made.current = context
    return made
