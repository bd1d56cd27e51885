"""Tells long work that its client has gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from magnetar.base.asgi import Receive
from magnetar.runtime.tasks import begin


@contextmanager
def told_of_leaving(receive: Receive, tell: Callable[[], None]) -> Iterator[None]:
    """Within it, `tell` is called when the client has gone. The body of the request must have been read, and
    only one such block be open at a time."""
    gone = begin(until_gone(receive, tell))
    try:
        yield
    finally:
        gone.cancel()


async def until_gone(receive: Receive, tell: Callable[[], None]) -> None:
    """Waits until the client has gone, and tells it."""
    while (await receive())["type"] != "http.disconnect":
        continue
    tell()
