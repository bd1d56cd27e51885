"""Appends to the current ledger, and the notices when entries are durable.

- All entries of one append are in one ledger, at consecutive ids, with one index base and one time.
- Entries that are appended one by one within a millisecond share a run, until the first of them is durable.
- Entries become visible in the order of their positions, and only when durable.
- When the log continues in a new ledger while the old one still has appends in flight, the new appends get
  their positions at once but are *held* until the old ledger is durable to its end. So the new ledger never
  has an entry on disk while an earlier entry of the log may still get lost. Otherwise a crash between the two
  could keep message 3 and lose 1 and 2, and a producer that sends all three again would be deduplicated down
  to 3 alone.

Other modules rely on these rules. Synchronous: the ledgers' drivers call on the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LedgerError
from magnetar.base.ids import Position
from magnetar.base.weak import nobody
from magnetar.ledger.api import Copies, LedgerWriter
from magnetar.managedlog.broker_times import BrokerTimes
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.tail_cache import ENTRY_OVERHEAD_BYTES, RUN_OVERHEAD_BYTES, TailCache


class LedgerFeed:
    """One ledger of the log that is written, and the listener of its writer."""

    __slots__ = ("_appender", "copies", "error", "held", "ledger", "next_entry", "writer")

    ledger: Ledger
    """Set together with `writer`, once the ledger exists."""
    writer: LedgerWriter
    copies: Copies | None
    """How many bookies hold it; None: the process's default."""
    next_entry: int
    """Entry id of the next append."""
    held: list[EntryRun]
    """Appended, but not passed to the writer yet."""
    error: LedgerError | None
    """Why the ledger cannot be written any more; None while it can."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.copies = None
        self.next_entry = 0
        self.held = []
        self.error = None

    def durable(self, last_entry: int) -> None:
        """Every entry up to `last_entry` is durable (WriterListener)."""
        self._appender.durable(self, last_entry)

    def failed(self, error: LedgerError) -> None:
        """The writer has failed (WriterListener)."""
        self.error = error
        self._appender.feed_failed(self, error)


_JOINED_MAX: Final = 128
"""Entries of a run that were appended one by one."""


def _join(run: EntryRun, entry: bytes, counts: list[int] | None) -> bool:
    """Adds an entry to a run that no other has seen, unless it has enough or counts otherwise."""
    entries = run.entries
    if (counts is None) != (run.counts is None) or len(entries) >= _JOINED_MAX:
        return False
    if len(entries) == 1:
        # The writer may still have the lists of the first entry.
        run.entries = [entries[0], entry]
        if counts is not None and run.counts is not None:
            run.counts = [run.counts[0], counts[0]]
    else:
        entries.append(entry)
        if counts is not None and run.counts is not None:
            run.counts.append(counts[0])
    return True


class Appender:
    """Assigns times and positions to a log's appends, and passes them to the ledger's writer."""

    def __init__(
        self,
        *,
        ledgers: LedgerList,
        cache: TailCache,
        times: BrokerTimes,
        next_index: int,
        appended: Callable[[EntryRun], None],
        drained: Callable[[LedgerFeed], None],
        failed: Callable[[LedgerError], None],
    ) -> None:
        """`appended` gets durable runs in order, `drained` is called when the previous ledger is durable to
        its end, `failed` at most once."""
        self._ledgers = ledgers
        self._cache = cache
        self._clock = times.clock
        self._appended = appended
        self._drained = drained
        self._failed = failed
        self._pending: deque[tuple[EntryRun, int]] = deque()
        self._open: EntryRun | None = None
        """The last of `_pending` when it began with one entry: the next of the same millisecond join it."""
        self._draining: LedgerFeed | None = None
        self._holding = False
        """Whether appends are held: while `_draining`."""
        self.current: LedgerFeed | None = None
        self.next_index = next_index
        self.times = times
        self.clock_ms = 0
        """The clock at the last append, Unix ms."""
        self.pending_bytes = 0
        self.entries_added = 0
        self.error: LedgerError | None = None

    @property
    def draining(self) -> bool:
        """Whether the previous ledger is not durable to its end yet."""
        return self._draining is not None

    @property
    def idle(self) -> bool:
        """Whether all appended entries are durable."""
        return not self._pending

    def switch(self, feed: LedgerFeed, *, holds: bool = True) -> None:
        """Continues in the ledger of `feed`, whose writer is new. Not while draining.

        `holds`: whether its appends are held until the ledger before is durable to its end.
        """
        assert self._draining is None
        left = self.current
        if left is not None:
            left.ledger.sealed_end = left.next_entry - 1
        feed.ledger.base_index = self.next_index
        self._ledgers.add(feed.ledger)
        self.current = feed
        if left is not None:
            if left.ledger.complete:
                self._drained(left)
            else:
                self._draining = left
                self._holding = holds

    def append(self, entries: list[bytes], counts: list[int] | None) -> Position:
        """Appends entries, at least one; returns the position of the first. Raises LedgerError."""
        feed = self.current
        assert feed is not None
        assert entries
        times = self.times
        now_ms = self.clock_ms = self._clock.now_ms()
        # Times never decrease along a ledger, see `broker_times`.
        if now_ms < times.last_ms:
            now_ms = times.last_ms
        else:
            times.last_ms = now_ms
        index = self.next_index
        if not self._holding:
            first = feed.writer.append(entries, counts, index, now_ms)
            assert first == feed.next_entry, "the ledger numbered entries otherwise"
        else:
            first = feed.next_entry
        ledger_id = feed.ledger.ledger_id
        count = len(entries)
        if count == 1:
            size_bytes = len(entries[0])
            self.next_index = index + (1 if counts is None else counts[0])
        else:
            size_bytes = sum(map(len, entries))
            self.next_index = index + (count if counts is None else sum(counts))
        self.pending_bytes += size_bytes
        feed.next_entry = first + count
        if (
            count == 1
            and (run := self._open) is not None
            and run.broker_time_ms == now_ms
            and run.ledger_id == ledger_id
            and _join(run, entries[0], counts)
        ):
            self._pending[-1] = (run, self._pending[-1][1] + size_bytes)
            return Position(ledger_id, first)
        run = EntryRun(ledger_id, first, entries, counts, index, now_ms)
        if self._holding:
            feed.held.append(run)
            self._open = None
        else:
            self._open = run if count == 1 else None
        self._pending.append((run, size_bytes))
        return Position(ledger_id, first)

    def durable(self, feed: LedgerFeed, last_entry: int) -> None:
        """The writer's mark moved: entries up to it become visible."""
        if self.error is not None:
            return
        pending = self._pending
        ledger = feed.ledger
        # Readers get what becomes durable now, and nothing may be added to that any more.
        self._open = None
        while pending:
            run, size_bytes = pending[0]
            if run.ledger_id != ledger.ledger_id or run.first_entry > last_entry:
                break
            count = len(run.entries)
            if run.first_entry + count > last_entry + 1:
                rest = run.slice(last_entry + 1 - run.first_entry, len(run.entries))
                run = run.slice(0, last_entry + 1 - run.first_entry)
                pending[0] = (rest, size_bytes - run.size_bytes)
                size_bytes = run.size_bytes
                count = len(run.entries)
            else:
                pending.popleft()
            self.pending_bytes -= size_bytes
            self.entries_added += count
            self._ledgers.grow(ledger, count, size_bytes, run.broker_time_ms)
            self._cache.add(run, size_bytes + RUN_OVERHEAD_BYTES + ENTRY_OVERHEAD_BYTES * count)
            self._appended(run)
        if feed is self._draining and ledger.complete:
            self._draining = None
            self._holding = False
            self._release_held()
            self._drained(feed)

    def _release_held(self) -> None:
        """Passes the held entries of the ledger to its writer."""
        feed = self.current
        assert feed is not None
        held, feed.held = feed.held, []
        try:
            for run in held:
                first = feed.writer.append(run.entries, run.counts, run.base_index, run.broker_time_ms)
                assert first == run.first_entry, "the ledger numbered entries otherwise"
        except LedgerError as error:
            self.fail(error)

    def feed_failed(self, feed: LedgerFeed, error: LedgerError) -> None:
        """A writer has failed. The failure of a ledger that is not in use, or not any more, affects no
        entries."""
        if feed is self.current or feed is self._draining:
            self.fail(error)

    def fail(self, error: LedgerError) -> None:
        """Fails everything that is not durable."""
        if self.error is None:
            self.error = error
            self._pending.clear()
            self._open = None
            self.pending_bytes = 0
            self._failed(error)

    def end(self) -> None:
        """The log is closed: drops the references to its listeners."""
        self.current = self._draining = None
        self._holding = False
        self._appended = self._drained = self._failed = nobody

    def check(self) -> None:
        """Asserts the invariants."""
        assert self.pending_bytes == sum(size for _, size in self._pending)
        assert not self._holding or self._draining is not None, "appends are held for no ledger"
        positions = [(run.ledger_id, run.first_entry) for run, _ in self._pending]
        assert positions == sorted(positions)
        if self.current is not None and self.error is None:
            waiting = sum(len(run.entries) for run, _ in self._pending)
            ledgers = [self.current.ledger] + ([self._draining.ledger] if self._draining else [])
            pushed = self.current.next_entry
            if self._draining is not None:
                assert self._draining.ledger.sealed_end is not None
                pushed += self._draining.ledger.sealed_end + 1
            else:
                assert not self.current.held
            assert waiting == pushed - sum(ledger.entries for ledger in ledgers)
