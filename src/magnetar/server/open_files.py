"""How many files and sockets the process may have open.

Soft limits are small for the sake of old programs that use select(2); a broker needs one file for each
connection, so it takes what the hard limit allows. Source: setrlimit(2).
"""

from __future__ import annotations

import logging
import resource
from typing import Final, NamedTuple

from magnetar.runtime.entrance import Entrance

_log = logging.getLogger("magnetar.server")

OPEN_FILES_WANTED: Final = 1 << 20
"""More than any process here opens; a soft limit without end would slow down whatever closes all files."""
OPEN_FILES_FEW: Final = 10_000
"""Below it the user is told: many connections would fail."""
OWN_FILES: Final = 256
"""Segments, metadata, listeners and the like: a reserve that no client gets."""
HTTP_SOCKETS_MAX: Final = 20_480
"""Sockets of the admin service, most of them WebSockets; at most a quarter of the clients' sockets."""


def wanted_limit(soft: int, hard: int, *, unlimited: int) -> int:
    """The soft limit to ask for; never less than it is."""
    if soft == unlimited:
        return soft
    return max(soft, OPEN_FILES_WANTED if hard == unlimited else min(hard, OPEN_FILES_WANTED))


class Sockets(NamedTuple):
    """How many sockets of others may be open."""

    clients: int
    """Sockets of the Pulsar protocol, or of ledger clients."""
    http: int
    """Sockets of the admin service, WebSockets included."""


def affordable_sockets() -> Sockets:
    """Sockets that leave enough files to everything else when the limit has been raised.

    Storage must be able to open segments whatever clients do, and HTTP is where an operator looks.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted_limit(soft, hard, unlimited=resource.RLIM_INFINITY)
    if limit == resource.RLIM_INFINITY:
        limit = OPEN_FILES_WANTED
    left = max(2, limit - OWN_FILES)
    http = max(1, min(left // 4, HTTP_SOCKETS_MAX))
    return Sockets(left - http, http)


def http_entrance() -> Entrance:
    """Counts the sockets of all HTTP listeners; one address may take half of the places."""
    most = affordable_sockets().http
    return Entrance("HTTP", most, max(1, most // 2))


def raise_limit() -> int:
    """Raises the soft limit as far as is allowed and useful; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted_limit(soft, hard, unlimited=resource.RLIM_INFINITY)
    if wanted != soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError) as error:
            # Some systems have a ceiling below the hard limit; the process runs with what it has.
            _log.warning("the limit of open files stays at %d: %s", soft, error)
            wanted = soft
    if wanted != resource.RLIM_INFINITY and wanted < OPEN_FILES_FEW:
        _log.warning(
            "this process may open %d files, enough for about %d connections; raise the hard limit"
            " (ulimit -Hn, or LimitNOFILE= of its service)",
            wanted,
            max(0, wanted - OWN_FILES),
        )
    return wanted
