"""TLS as it is served: what clients are shown, whom we trust when they show something, and both made anew."""

from __future__ import annotations

import ssl


class ServedContext(ssl.SSLContext):
    """TLS of files as they were at one time."""

    trusted: frozenset[str] = frozenset()
    """Fingerprints of the certificates of those who sign clients' certificates."""


class RenewedContext(ssl.SSLContext):
    """What a listener holds for ever: each new connection gets the newest files.

    Old ones keep theirs, and nothing of an old one can be resumed: the sessions of a context end with it.
    """

    current: ssl.SSLContext
    """Of connections from now on."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As its parent, by what is current; event loops know no other way to TLS."""
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def renewed(context: ssl.SSLContext, *, server_side: bool = True) -> RenewedContext:
    """A context that begins as this one."""
    made = RenewedContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    made.current = context
    return made
