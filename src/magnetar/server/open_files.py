"""Limits of open files and sockets of the process.

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
"""Largest soft limit that is requested, more than any process here needs. A higher one would slow down
programs that close all descriptors."""
OPEN_FILES_FEW: Final = 10_000
"""A limit below this is logged, because many connections would fail."""
OWN_FILES: Final = 256
"""Descriptors reserved for segments, metadata, listeners and the like."""
HTTP_SOCKETS_MAX: Final = 20_480
"""Sockets of the admin service, most of them WebSockets; at most a quarter of the clients' sockets."""


def wanted_limit(soft: int, hard: int, *, unlimited: int) -> int:
    """The soft limit to request; never less than the present one."""
    if soft == unlimited:
        return soft
    return max(soft, OPEN_FILES_WANTED if hard == unlimited else min(hard, OPEN_FILES_WANTED))


class Sockets(NamedTuple):
    """Most open sockets of clients, by protocol."""

    clients: int
    """Sockets of the Pulsar protocol, or of ledger clients."""
    http: int
    """Sockets of the admin service, WebSockets included."""


def affordable_sockets() -> Sockets:
    """The numbers of sockets that leave enough descriptors for other uses under the raised limit.

    Storage must be able to open segments whatever clients do, and operators need HTTP.
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
    """Raises the soft limit as far as allowed and useful; returns the limit in force."""
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
