"""The ranges of keys that a store on etcd follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, cast

import pytest

from magnetar.metadata.etcd.etcd_client import CallLostError
from magnetar.metadata.etcd.etcd_pb2 import Event, KeyValue, ResponseHeader, WatchRequest, WatchResponse
from magnetar.metadata.etcd.followed import CompactedError, FollowedRanges
from magnetar.metadata.etcd.watching import ChangeFollower


def requests(ranges: FollowedRanges) -> list[tuple[str, int, int]]:
    """What is to be sent: kind, id, first revision."""
    found = []
    while (request := ranges.next_request()) is not None:
        if request.HasField("create_request"):
            made = request.create_request
            found.append((made.key.decode(), made.watch_id, made.start_revision))
        else:
            found.append(("cancel", request.cancel_request.watch_id, 0))
    return found


def told(watch_id: int, revision: int, *keys: str, **fields: object) -> WatchResponse:
    events = [Event(kv=KeyValue(key=key.encode(), mod_revision=revision)) for key in keys]
    return WatchResponse(
        header=ResponseHeader(revision=revision),
        watch_id=watch_id,
        events=events,
        **fields,  # type: ignore[arg-type]
    )


def two() -> FollowedRanges:
    ranges = FollowedRanges()
    ranges.knows(5)
    ranges.follow("/a", [(b"/a/", b"/a0")])
    ranges.follow("/b", [(b"/b/", b"/b0"), (b"/b", b"/b\0")])
    return ranges


def test_a_range_begins_behind_what_was_known_when_it_was_asked_for() -> None:
    ranges = two()
    ranges.follow("/a", [(b"/a/", b"/a0")])
    assert requests(ranges) == [("/a/", 1, 6), ("/b/", 2, 6), ("/b", 3, 6)]
    found = ranges.take(told(2, 8, "/b/x"))
    assert found is not None
    assert (found[0].name, [event.kv.key for event in found[1]]) == ("/b", [b"/b/x"])
    ranges.follow("/c", [(b"/c/", b"/c0")])
    assert requests(ranges) == [("/c/", 4, 9)]


def test_another_stream_goes_on_where_each_range_was() -> None:
    ranges = two()
    requests(ranges)
    ranges.take(told(1, 7, "/a/x"))
    assert ranges.take(told(3, 9)) is None, "it is as far as all, without a change"
    assert ranges.take(told(2, 9, created=True)) is None
    ranges.begin_stream()
    assert requests(ranges) == [("/a/", 1, 8), ("/b/", 2, 6), ("/b", 3, 10)]


def test_what_is_not_followed_any_more_is_cancelled_once_all_have_left_it() -> None:
    ranges = two()
    ranges.follow("/a", [(b"/a/", b"/a0")])
    requests(ranges)
    ranges.unfollow("/a")
    assert requests(ranges) == []
    ranges.unfollow("/a")
    assert requests(ranges) == [("cancel", 1, 0)]
    assert ranges.take(told(1, 7, "/a/x")) is None, "it was under way"
    assert ranges.take(told(1, 7, canceled=True)) is None
    # One that was never asked for need not be cancelled.
    ranges.follow("/c", [(b"/c/", b"/c0")])
    ranges.unfollow("/c")
    assert requests(ranges) == []


def test_a_range_whose_changes_are_lost_is_followed_anew() -> None:
    ranges = two()
    requests(ranges)
    with pytest.raises(CompactedError):
        ranges.take(told(1, 30, canceled=True, compact_revision=20))
    ranges.begin_stream()
    assert requests(ranges) == [("/b/", 2, 6), ("/b", 3, 6), ("/a/", 4, 20)]


def test_a_stream_that_etcd_ends_is_of_no_more_use() -> None:
    ranges = two()
    requests(ranges)
    for answer in (told(2, 9, canceled=True), told(-1, 9, canceled=True, created=True)):
        with pytest.raises(CallLostError):
            ranges.take(answer)


def test_which_ranges_a_key_or_a_deletion_concerns() -> None:
    ranges = two()
    names = ("/", "/a", "/b", "/b/x")
    assert [each.name for each in ranges.with_key(b"/b", names)] == ["/b"]
    assert [each.first for each in ranges.with_key(b"/b/x", names)] == [b"/b/"]
    assert ranges.with_key(b"/b-other", names) == []
    assert [(each.name, keys) for each, keys in ranges.within(b"/a/x/", b"/a/x0")] == [
        ("/a", (b"/a/x/", b"/a/x0"))
    ]
    assert [each.first for each, _ in ranges.within(b"/", b"0")] == [b"/a/", b"/b/", b"/b"]


class Etcd:
    """Streams that a test answers."""

    def __init__(self) -> None:
        self.sent: list[WatchRequest] = []
        self.answers: asyncio.Queue[WatchResponse | None] = asyncio.Queue()
        self.named = lambda revision: None
        self.streams = 0

    async def stream(
        self, method: str, asked: AsyncIterator[WatchRequest], *_: object
    ) -> AsyncGenerator[WatchResponse, None]:
        self.streams += 1
        sending = asyncio.ensure_future(self._send(asked))
        try:
            while (answer := await self.answers.get()) is not None:
                yield answer
        finally:
            sending.cancel()
        raise CallLostError("it broke")

    async def _send(self, asked: AsyncIterator[WatchRequest]) -> None:
        async for request in asked:
            self.sent.append(request)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_write_waits_for_its_watchers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr("magnetar.metadata.etcd.watching.RETRY_S", 0.0)
        etcd, seen, gaps = Etcd(), list[tuple[str, int]](), list[int]()

        def events(name: str, changes: Sequence[Event]) -> None:
            seen.append((name, len(changes)))

        follower = ChangeFollower(cast(Any, etcd), events, lambda: gaps.append(1))
        follower.follow("/a", [(b"/a/", b"/a0")])
        running = asyncio.ensure_future(follower.run())
        await turns()
        assert [request.create_request.watch_id for request in etcd.sent] == [1]
        await follower.seen(follower.ranges.with_key(b"/other", ["/other"]), 7, 60.0)
        waiting = asyncio.ensure_future(follower.seen(follower.ranges.with_key(b"/a/x", ["/a"]), 7, 60.0))
        await turns()
        assert not waiting.done()
        etcd.answers.put_nowait(told(1, 7, "/a/x"))
        await waiting
        assert seen == [("/a", 1)]
        # A range that nothing watches any more is not waited for.
        waiting = asyncio.ensure_future(follower.seen(follower.ranges.with_key(b"/a/x", ["/a"]), 9, 60.0))
        await turns()
        follower.unfollow("/a")
        await waiting
        assert etcd.sent[-1].cancel_request.watch_id == 1
        # The requests of a stream that broke are not taken by its former self.
        follower.follow("/b", [(b"/b/", b"/b0")])
        await turns()
        etcd.answers.put_nowait(None)
        await turns()
        assert etcd.streams == 2
        assert etcd.sent[-1].create_request.watch_id == 2
        etcd.answers.put_nowait(told(2, 20, canceled=True, compact_revision=15))
        await turns()
        assert gaps == [1]
        assert etcd.sent[-1].create_request.start_revision == 15
        running.cancel()
        await turns()

    asyncio.run(story())
