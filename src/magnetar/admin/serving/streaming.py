"""Sends an answer whose body is made while it is sent.

The body waits for its client, and its maker for the body. When the client goes, or when the body cannot be
made to its end, the maker is told at once. An answer that is not whole ends with the connection, without the
last chunk that HTTP has for a whole one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, cast

from magnetar.admin.calls.call import Streamed
from magnetar.admin.calls.leaving import until_gone
from magnetar.base.asgi import Receive, Scope, Send
from magnetar.base.errors import MagnetarError
from magnetar.runtime.tasks import begin, ended

_log = logging.getLogger("magnetar.admin")

STATE_CUT: Final = "cut"
"""Key in a request's state: closes the connection once what was written is sent."""
_CUT_S: Final = 60.0
"""Seconds for a client to take what was written before its connection is closed."""


async def send_streamed(answer: Streamed, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends the whole answer, or closes the connection."""
    gone = begin(until_gone(receive, answer.close))
    head = {"content-type": answer.content_type, "cache-control": "no-store", **answer.headers}
    headers = [(name.encode(), value.encode()) for name, value in head.items()]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for piece in answer.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except MagnetarError as error:
        if gone.done():
            return
        _log.warning("%s %s: the answer is cut off: %s", scope["method"], scope["path"], error)
        cut = cast("Callable[[], None] | None", scope.get("state", {}).get(STATE_CUT))
        if cut is not None:
            cut()
            # The server takes a client that is still there for one whose answer was forgotten.
            await ended(gone, within_s=_CUT_S)
    finally:
        answer.close()
        gone.cancel()
