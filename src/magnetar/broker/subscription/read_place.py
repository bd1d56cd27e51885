"""Where a subscription reads and acknowledges, and how a skip or a seek moves both (pure).

Three things must agree: the cursor, the dispatcher's next read, and the delayed entries that are held back.
A skip acknowledges and leaves what was sent behind it alone; a seek takes acknowledgements back, so nothing
that was known before it counts any more. The driver (`subscription.py`) detaches consumers before a seek,
makes the cursor durable after both, and runs the pump.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.compaction.compacted_source import CompactedSource, forget_progress
from magnetar.broker.compaction.compacted_view import CompactedView
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.transactions.hidden import pass_all_hidden
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.visible_reading import last_visible


class HeldBack(Protocol):
    """Delayed entries, as what reads around them needs them."""

    @property
    def count(self) -> int:
        """Entries that are held back."""

    def forget_upto(self, position: Position) -> None:
        """All entries up to and including this position are acknowledged."""


class Screen(Protocol):
    """What is read instead of the source while entry filters are in force."""

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None: ...
    def read(self, position: Position, bytes_max: int, entries_max: int) -> Awaitable[list[EntryRun]]: ...

    def forget(self) -> None:
        """Acknowledgements may have been taken back: all entries are decided again."""


class ReadPlace:
    """The place of one subscription."""

    __slots__ = ("acks", "cursor", "delays", "dispatcher", "log", "screen", "source")

    def __init__(self, log: ManagedLog, cursor: Cursor, delays: HeldBack) -> None:
        self.log = log
        self.cursor = cursor
        self.delays = delays
        self.source: ManagedLog | CompactedSource = log
        """Where entries are read."""
        self.acks: Cursor | CompactedSource = cursor
        """Where it is kept what is acknowledged of them."""
        self.screen: Screen | None = None
        """Set while entry filters are in force."""
        self.dispatcher: Dispatcher | None = None
        """None before the first consumer, and after all were detached."""

    @property
    def start(self) -> Position:
        """The first read of a dispatcher without a past: behind what is acknowledged."""
        return self.source.next_position(self.acks.mark_delete)

    @property
    def read_position(self) -> Position:
        """The next entry that will be read for the consumers."""
        if self.dispatcher is None:
            return self.log.next_position(self.cursor.mark_delete)
        return self.dispatcher.read_position

    @property
    def unread(self) -> int:
        """Entries of the log from the next read on."""
        log = self.log
        return log.entries_between(log.previous_position(self.read_position), log.last_position)

    def view_compacted(self, view: CompactedView | None, start: Position) -> None:
        """The view for the next consumers, None: the log; a view is kept, as it knows of seeks since.
        `start`: the first wanted entry of a new subscription."""
        if view is None:
            self.source, self.acks = self.log, self.cursor
        elif self.source is self.log:
            self.source = self.acks = CompactedSource(view, self.cursor, start)

    def skip(self, position: Position) -> bool:
        """Acknowledges up to and including `position`, as far as consumers could get it by now; returns
        whether mark-delete advanced."""
        before = self.cursor.mark_delete
        # Entries that no consumer can get yet stay: they may be committed.
        self.acks.ack_cumulative(min(position, last_visible(self.log)))
        self.delays.forget_upto(self.cursor.mark_delete)
        if self.dispatcher is not None:
            following = self.log.next_position(self.cursor.mark_delete)
            # Nothing after the skipped part is forgotten: entries sent from there would be sent twice.
            if following >= self.dispatcher.read_position:
                self.dispatcher.rewind(following)
        return self.cursor.mark_delete != before

    def seek(self, position: Position, wanted: Position) -> None:
        """The next entry to deliver is `position`. `wanted`: what was named, which the log may not have any
        more."""
        assert self.dispatcher is None, "consumers would go on where they were"
        self.cursor.reset(position)
        pass_all_hidden(self.cursor, self.log.reading.visible)
        if self.screen is not None:
            self.screen.forget()
        if isinstance(self.source, CompactedSource):
            self.source.sought(wanted)
        else:
            forget_progress(self.cursor)
        self.delays.forget_upto(self.cursor.mark_delete)

    def read_again(self) -> None:
        """All that is unacknowledged is read again."""
        if self.dispatcher is not None:
            self.dispatcher.rewind(self.log.next_position(self.cursor.mark_delete))

    def check(self) -> None:
        """Asserts what must always hold: reads and acknowledgements use the same source."""
        if isinstance(self.source, CompactedSource):
            assert self.acks is self.source, "read from what is compacted, acknowledged in the log"
        else:
            assert self.source is self.log, "another log is read"
            assert self.acks is self.cursor, "acknowledged in another cursor"
