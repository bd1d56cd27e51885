"""One producer on a socket that does not block: sends within a window, checks every receipt."""

from __future__ import annotations

from typing import Final

from bench import frames as f
from bench.connection import Inbox
from bench.driver import Lane, Template
from bench.payload import now_ms
from bench.scan import BrokerAnswerError

BLOCK_BYTES: Final = 512 << 10
BLOCK_FRAMES_MAX: Final = 1024
WINDOW_MESSAGES: Final = 10_000
WINDOW_BYTES: Final = 64 << 20


def window_entries(template: Template, window_messages: int = WINDOW_MESSAGES) -> int:
    """Entries that may wait for receipts: the messages asked for, at least two entries, at most 64 MiB."""
    entries = max(2, window_messages // template.messages_per_entry)
    return max(1, min(entries, WINDOW_BYTES // len(template.frame)))


class Publisher:
    """A producer that sends as fast as the window allows.

    A block goes out in as many pieces as the socket wants and is renumbered only when all of it is with the
    kernel.
    """

    def __init__(
        self, lane: Lane, *, window_messages: int = WINDOW_MESSAGES, entries_max: int | None = None
    ) -> None:
        """`entries_max`: stop after so many entries, None for no end."""
        self.socket: Final = lane.socket
        self.template: Final = lane.template
        self._lane = lane
        self.window: Final = window_entries(self.template, min(window_messages, lane.window_messages_max))
        self.entries_sent: int = 0
        """Entries whose last byte the kernel has taken or that belong to the block under way."""
        self._entries_max = entries_max
        block_bytes = min(
            BLOCK_FRAMES_MAX, max(1, BLOCK_BYTES // len(self.template.frame)), max(1, self.window // 4)
        )
        self._block = f.SendBlock(self.template, block_bytes)
        self._unsent = self._block.view[:0]
        self._inbox = Inbox(lane.pending())

    @property
    def entries_acknowledged(self) -> int:
        """Entries whose receipt came."""
        return self._lane.acknowledged

    def stop(self) -> None:
        """Send nothing after the block under way."""
        self._entries_max = self.entries_sent

    @property
    def done(self) -> bool:
        """Everything that was to be sent is acknowledged."""
        return not self._unsent and self.entries_sent == self._entries_max == self._lane.acknowledged

    def pump(self) -> bool:
        """Send what window and socket take; False when the socket took less and must become writable."""
        while True:
            if not self._unsent and not self._next_block():
                return True
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return False

    def _next_block(self) -> bool:
        count = min(self._block.count, self.window - (self.entries_sent - self._lane.acknowledged))
        if self._entries_max is not None:
            count = min(count, self._entries_max - self.entries_sent)
        # A sliver of a block costs as much work as a whole one; better to wait for a few more receipts.
        if count <= 0 or (count < self._block.count // 2 and self.entries_sent + count != self._entries_max):
            return False
        first = f.FIRST_SEQUENCE_ID + self.entries_sent * self.template.messages_per_entry
        self._block.number(first, now_ms())
        self._unsent = self._block.view[: count * self._block.frame_length]
        self.entries_sent += count
        return True

    def receive(self) -> None:
        """Read once and check what came; raises BrokerAnswerError when it is wrong."""
        data = self._inbox.receive(self.socket)
        if data is None:
            return
        self._inbox.used(self._lane.feed(data))
        if self._lane.acknowledged > self.entries_sent:
            raise BrokerAnswerError("more receipts than entries sent")
