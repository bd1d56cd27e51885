"""Thresholds, paces, pauses and the cache of pieces: plain values."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.tiered.api import SealedLedger
from magnetar.tiered.backoff import LONGEST_MS, Backoff
from magnetar.tiered.context import (
    OffloadContext,
    OffloadedCopy,
    OffloadedSegment,
    attempt_prefix,
    decode_segments,
    encode_segments,
    parse_object_name,
    segment_name,
)
from magnetar.tiered.pace import SHARE_MIN, Pace
from magnetar.tiered.pieces import Piece, PieceCache
from magnetar.tiered.policy import OffloadPolicy, before, due, local_copies_that_may_go

ID = UUID("12345678-1234-5678-1234-567812345678")


def ledger(number: int, *, size: int = 100, time_ms: int = 0, **copy: object) -> SealedLedger:
    context = OffloadContext(ID, "file:///x", **copy) if copy else None  # type: ignore[arg-type]
    return SealedLedger(number, 10, size, time_ms, context)


def ids(ledgers: list[SealedLedger]) -> list[int]:
    return [each.ledger_id for each in ledgers]


def test_the_newest_bytes_stay() -> None:
    ledgers = [ledger(1), ledger(2, complete=True), ledger(3), ledger(4)]
    for threshold, wanted in ((-1, []), (0, [1, 3, 4]), (100, [1, 3]), (199, [1, 3]), (200, [1]), (400, [])):
        assert ids(due(ledgers, OffloadPolicy(threshold_bytes=threshold), 0)) == wanted


def test_old_ledgers_go() -> None:
    ledgers = [ledger(1, time_ms=1000), ledger(2, time_ms=5000)]
    assert ids(due(ledgers, OffloadPolicy(threshold_s=3), 3999)) == []
    assert ids(due(ledgers, OffloadPolicy(threshold_s=3), 4000)) == [1]
    assert ids(due(ledgers, OffloadPolicy(threshold_s=0), 5000)) == [1, 2]


def test_on_request_everything_before_a_ledger_goes() -> None:
    ledgers = [ledger(1), ledger(2, complete=True), ledger(3), ledger(4)]
    assert ids(before(ledgers, Position(4, 7))) == [1, 3]
    assert ids(before(ledgers, Position(1, 0))) == []


def test_local_copies_stay_for_the_lag() -> None:
    ledgers = [
        ledger(1, complete=True, timestamp_ms=1000),
        ledger(2, complete=False, timestamp_ms=1000),
        ledger(3, complete=True, timestamp_ms=1000, local_deleted=True),
        ledger(4, complete=True, timestamp_ms=1000, foreign=b"jcloud"),
    ]
    assert ids(local_copies_that_may_go(ledgers, OffloadPolicy(deletion_lag_ms=500), 1499)) == []
    assert ids(local_copies_that_may_go(ledgers, OffloadPolicy(deletion_lag_ms=500), 1500)) == [1]
    assert ids(local_copies_that_may_go(ledgers, OffloadPolicy(deletion_lag_ms=-1), 1 << 60)) == []


def test_policies_of_topics_come_before_those_of_namespaces() -> None:
    default = OffloadPolicy(1, 2, 3)
    namespace = {"offload_threshold": 10, "offload_policies": {"managedLedgerOffloadThresholdInSeconds": 20}}
    own = {"offload_policies": {"managedLedgerOffloadThresholdInBytes": 100}}
    assert default.under({}, {}) == default
    assert default.under({}, namespace) == OffloadPolicy(10, 20, 3)
    assert default.under(own, namespace) == OffloadPolicy(100, 20, 3)
    assert default.under({}, {"offload_deletion_lag_ms": -1}).deletion_lag_ms == -1
    assert not OffloadPolicy().automatic


def test_names_tell_log_ledger_and_attempt() -> None:
    copy = OffloadedCopy(7, OffloadContext(ID, "file:///x"))
    name = segment_name("t/n/persistent/a%2Fb", copy, OffloadedSegment(0, 9, 5))
    assert name.startswith(attempt_prefix("t/n/persistent/a%2Fb", 7, ID))
    assert parse_object_name(name) == ("t/n/persistent/a%2Fb", 7, ID)
    assert parse_object_name(name + ".unfinished") == ("t/n/persistent/a%2Fb", 7, ID)
    for other in ("magnetar-owner", "a/b/metadata.json", "x/0000000000000000007-nothing", f"x/{name[-90:]}"):
        assert parse_object_name(other) is None


def test_segments_as_text() -> None:
    segments = (OffloadedSegment(0, 6, 1000), OffloadedSegment(7, 9, 20))
    assert decode_segments(encode_segments(segments)) == segments
    assert decode_segments("") == ()


def test_work_takes_its_share_of_the_time() -> None:
    pace = Pace(share_busy=0.25)
    pauses = [pace.pause_s(worked_s=1, size_bytes=1, late_s=0, busy=True) for _ in range(100)]
    assert pauses[-1] == pytest.approx(3)
    for _ in range(100):
        pace.pause_s(worked_s=1, size_bytes=1, late_s=0, busy=False)
    assert pace.share == 1
    assert pace.pause_s(worked_s=1, size_bytes=1, late_s=0, busy=False) == 0


def test_clients_that_wait_make_it_yield_at_once() -> None:
    pace = Pace()
    for _ in range(100):
        pace.pause_s(worked_s=0.01, size_bytes=1, late_s=0, busy=False)
    pace.pause_s(worked_s=0.01, size_bytes=1, late_s=0.1, busy=False)
    assert pace.share == 0.5
    assert pace.pause_s(worked_s=0.01, size_bytes=1, late_s=0, busy=True) == pytest.approx(0.03)
    for _ in range(100):
        pace.pause_s(worked_s=0.01, size_bytes=1, late_s=0.1, busy=True)
    assert pace.share == SHARE_MIN, "it never stops altogether"


def test_bytes_per_second_are_kept() -> None:
    pace = Pace(bytes_per_s_max=1000)
    for _ in range(100):
        pause_s = pace.pause_s(worked_s=0.5, size_bytes=10_000, late_s=0, busy=False)
    assert pause_s == pytest.approx(9.5)


def test_pauses_after_failures_grow() -> None:
    backoff = Backoff()
    assert not backoff.waits(0)
    assert [backoff.failed(0) for _ in range(3)] == [30_000, 60_000, 120_000]
    assert backoff.waits(119_999)
    assert not backoff.waits(120_000)
    assert max(backoff.failed(0) for _ in range(20)) == LONGEST_MS
    backoff.succeeded()
    assert not backoff.waits(0)
    assert backoff.failed(0) == 30_000


def runs_from(first: int, count: int, size: int) -> list[EntryRun]:
    half = count // 2
    return [
        EntryRun(1, first, [b"x" * size] * half, None, first, 5),
        EntryRun(1, first + half, [b"y" * size] * (count - half), [2] * (count - half), first + half, 6),
    ]


def test_pieces_are_found_by_their_entries() -> None:
    cache = PieceCache(1 << 20)
    copy = OffloadedCopy(1, OffloadContext(ID, "file:///x"))
    cache.add(copy, Piece(runs_from(10, 10, 5)))
    cache.add(copy, Piece(runs_from(40, 10, 5)))
    assert [cache.find(copy, entry) is not None for entry in (9, 10, 19, 20, 39, 40, 49, 50)] == [
        False, True, True, False, False, True, True, False,
    ]  # fmt: skip
    piece = cache.find(copy, 13)
    assert piece is not None
    assert [(run.first_entry, run.last_entry, run.base_index) for run in piece.cut(13, 17, 1 << 20)] == [
        (13, 14, 13),
        (15, 17, 15),
    ]
    assert [run.last_entry for run in piece.cut(13, 17, 1)] == [13]
    cache.forget(ID)
    assert (len(cache), cache.bytes_used) == (0, 0)


def test_the_cache_keeps_its_budget_whatever_happens() -> None:
    chance = random.Random(7)
    cache = PieceCache(20_000)
    copies = [OffloadedCopy(1, OffloadContext(UUID(int=number), "file:///x")) for number in range(3)]
    for _ in range(500):
        copy = chance.choice(copies)
        what = chance.random()
        if what < 0.6:
            cache.add(
                copy, Piece(runs_from(chance.randrange(100), chance.randint(2, 30), chance.randint(1, 900)))
            )
        elif what < 0.95:
            cache.find(copy, chance.randrange(130))
        else:
            cache.forget(copy.context.attempt)
        cache.check()
    assert len(cache) > 0


def test_slow_commits_make_it_rest_longer() -> None:
    """Commits of half a millisecond are usual here; what they take while files are written counts."""
    pace = Pace(share_busy=0.25)

    def share_after(*commits_s: float | None) -> float:
        for commit_s in commits_s:
            pace.pause_s(worked_s=0.1, size_bytes=1, late_s=0.0, busy=True, commit_s=commit_s)
        return pace.share

    assert share_after(0.0005, None, 0.0006) == 0.25
    assert 0.125 < share_after(0.004, 0.0005) < 0.2, "once"
    assert share_after(0.004, 0.004) < 0.05, "as long as it lasts"
    slow = pace.share
    assert share_after(None) > slow, "and not when nobody commits"
    assert share_after(*[0.004] * 300) > 0.2, "a disk that is slow for good is what is usual"
    fast = Pace(share_busy=0.25)
    assert fast.pause_s(worked_s=0.1, size_bytes=1, late_s=0, busy=True, commit_s=0.0001) == 0.1 * 3
    fast.pause_s(worked_s=0.1, size_bytes=1, late_s=0, busy=True, commit_s=0.0009)
    assert fast.share == 0.25, "less than a millisecond more disturbs nobody"


def test_commits_that_vary_by_themselves_stop_nothing() -> None:
    pace = Pace(share_busy=0.25)
    shares = []
    for number in range(400):
        commit_s = (0.004, 0.012, 0.005, 0.009, 0.003)[number % 5]
        pace.pause_s(worked_s=0.1, size_bytes=1, late_s=0.0, busy=True, commit_s=commit_s)
        shares.append(pace.share)
    assert sum(shares) / len(shares) > 0.2
