"""Keeps consumers from coming back to a subscription before a seek of it is answered.

A seek detaches the consumers, and their clients come back at once; storing the new place may take longer. A
client whose seek is answered discards the messages that it received before. Messages that it got while it
waited, sent with its permits, would never reach its application. Pulsar fences the subscription for that
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class SeekFence:
    """The fence of one subscription."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None
        """Done when the seek that began last has ended."""

    @contextmanager
    def closed(self) -> Iterator[None]:
        """While a seek is under way."""
        before = self._last
        mine = self._last = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            if before is None or before.done():
                mine.set_result(None)
            else:
                # The one before is not answered yet.
                before.add_done_callback(lambda _: mine.set_result(None))

    async def passed(self) -> None:
        """Returns when no seek is under way."""
        while self._last is not None:
            last = self._last
            # A waiting client may give up; the others wait on.
            await asyncio.shield(last)
            if self._last is last:
                self._last = None
