"""States of a client's connection to the proxy (pure).

The table:

    state       event                               then
    SILENT      CONNECT                             CHECKING, or without authentication the next state
    CHECKING    credentials proven, no broker named LOOKUPS: CONNECTED is answered
    CHECKING    credentials proven, a broker named  REACHING, if it is one of the cluster; else ERROR
    CHECKING    credentials refused                 ERROR, then CLOSED
    LOOKUPS     a question                          a broker is asked, see `lookups.py`
    LOOKUPS     any other command                   ERROR, then CLOSED: a topic is used through a broker
    REACHING    CONNECTED of the broker             SPLICED: it and all that follows is passed on unread
    REACHING    no broker, or its ERROR             ERROR, then CLOSED
    SPLICED     either side closes                  CLOSED
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClientState(Enum):
    """State of a client connection; see the table above."""

    SILENT = "silent"
    CHECKING = "checking"
    LOOKUPS = "lookups"
    REACHING = "reaching"
    SPLICED = "spliced"
    CLOSED = "closed"


_S = ClientState
NEXT: Final = {
    _S.SILENT: {_S.CHECKING, _S.CLOSED},
    _S.CHECKING: {_S.LOOKUPS, _S.REACHING, _S.CLOSED},
    _S.LOOKUPS: {_S.CLOSED},
    _S.REACHING: {_S.SPLICED, _S.CLOSED},
    _S.SPLICED: {_S.CLOSED},
    _S.CLOSED: frozenset[ClientState](),
}
"""See `base.machine`."""
