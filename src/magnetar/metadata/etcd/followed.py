"""Which keys a store follows, over one stream of etcd (pure).

Only what is watched is followed: etcd sends a change to a client when it lies in one of the client's
ranges, and a broker of many needs few of the cluster's changes. A path is two ranges: its own key, and all
below it.

    follow ─▶ a request to create ─▶ answers with events, each moves the range's revision
    unfollow ─▶ a request to cancel
    another stream ─▶ all are created anew, from behind the revision that each has reached

A range that is new begins behind the newest revision that any answer of etcd has named: whatever is written
after `follow` is behind that. What was written shortly before may be told too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from magnetar.metadata.etcd.etcd_client import CallLostError
from magnetar.metadata.etcd.etcd_pb2 import (
    Event,
    WatchCancelRequest,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)


class FollowedRange:
    """One range of keys."""

    __slots__ = ("end", "first", "name", "revision", "watch_id")

    def __init__(self, name: str, first: bytes, end: bytes, revision: int) -> None:
        self.watch_id = 0
        """Id of its watch, which no other watch ever gets."""
        self.name = name
        """What it was followed as."""
        self.first = first
        self.end = end
        self.revision = revision
        """All changes up to this one have been told."""

    def common(self, first: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The keys that are in another range too; None: there are none."""
        lower, upper = max(self.first, first), min(self.end, end)
        return (lower, upper) if lower < upper else None


class FollowedRanges:
    """The ranges of one store."""

    def __init__(self) -> None:
        self.known = 0
        """The newest revision that etcd has named."""
        self._named: dict[str, list[FollowedRange]] = {}
        self._users: dict[str, int] = {}
        """How often each name is followed."""
        self._by_id: dict[int, FollowedRange] = {}
        self._last_id = 0
        # As many as there are ranges; and of each that was followed over this stream one at most.
        self._to_create: deque[FollowedRange] = deque()
        self._to_cancel: deque[int] = deque()

    def knows(self, revision: int) -> None:
        """An answer of etcd has named this revision."""
        self.known = max(self.known, revision)

    def follow(self, name: str, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Follows ranges of keys, each from its first key up to one before its end. Each call has its
        `unfollow`."""
        self._users[name] = self._users.get(name, 0) + 1
        if self._users[name] > 1:
            return
        made = [FollowedRange(name, first, end, self.known) for first, end in ranges]
        self._named[name] = made
        for each in made:
            self._create(each)

    def _create(self, each: FollowedRange) -> None:
        self._last_id += 1
        each.watch_id = self._last_id
        self._by_id[each.watch_id] = each
        self._to_create.append(each)

    def unfollow(self, name: str) -> None:
        """Undoes one `follow`."""
        self._users[name] -= 1
        if self._users[name]:
            return
        del self._users[name]
        for each in self._named.pop(name):
            del self._by_id[each.watch_id]
            if each in self._to_create:
                self._to_create.remove(each)
            else:
                self._to_cancel.append(each.watch_id)

    def begin_stream(self) -> None:
        """Another stream begins: it follows nothing yet."""
        self._to_cancel.clear()
        self._to_create = deque(self._by_id.values())

    def next_request(self) -> WatchRequest | None:
        """What is to be sent next; None: nothing for now."""
        if self._to_create:
            each = self._to_create.popleft()
            return WatchRequest(
                create_request=WatchCreateRequest(
                    key=each.first,
                    range_end=each.end,
                    start_revision=each.revision + 1,
                    # Else a range without changes would be as old as its beginning when the stream breaks.
                    progress_notify=True,
                    watch_id=each.watch_id,
                )
            )
        if self._to_cancel:
            return WatchRequest(cancel_request=WatchCancelRequest(watch_id=self._to_cancel.popleft()))
        return None

    def take(self, answer: WatchResponse) -> tuple[FollowedRange, Sequence[Event]] | None:
        """The range that an answer is about, with its changes; None: nothing is to be told.

        Raises CompactedError when changes of a range are lost, which is followed anew then, and CallLostError
        when the stream is of no more use.
        """
        self.knows(answer.header.revision)
        each = self._by_id.get(answer.watch_id)
        if answer.canceled:
            if answer.compact_revision and each is not None:
                self._again(each, answer.compact_revision)
            if answer.created or each is not None:
                raise CallLostError(f"the stream of changes was cancelled: {answer.cancel_reason}")
            return None
        if each is None or answer.created:
            return None
        if not answer.events:
            each.revision = max(each.revision, answer.header.revision)
            return None
        each.revision = max(each.revision, *(event.kv.mod_revision for event in answer.events))
        return each, answer.events

    def _again(self, each: FollowedRange, compacted: int) -> None:
        del self._by_id[each.watch_id]
        each.revision = max(each.revision, compacted - 1)
        self._create(each)
        raise CompactedError(f"changes before revision {compacted} are not kept any more")

    def is_behind(self, each: FollowedRange, revision: int) -> bool:
        """Whether changes up to this revision are still to be told of a range that is followed."""
        return each.revision < revision and self._by_id.get(each.watch_id) is each

    def with_key(self, key: bytes, names: Iterable[str]) -> list[FollowedRange]:
        """The ranges that a key lies in, of those that are followed as one of `names`: a store may follow
        thousands."""
        found = (each for name in names for each in self._named.get(name, ()))
        return [each for each in found if each.first <= key < each.end]

    def within(self, first: bytes, end: bytes) -> list[tuple[FollowedRange, tuple[bytes, bytes]]]:
        """The ranges that have keys in common with another one, and those keys."""
        found = ((each, each.common(first, end)) for each in self._by_id.values())
        return [(each, common) for each, common in found if common is not None]


class CompactedError(CallLostError):
    """Changes were lost: etcd does not keep them any more."""
