"""Cookies, full disks, deleted ledgers: the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from magnetar.base.errors import MetadataError, StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import Belonging, Held
from magnetar.bookie.network.collecting import collect, doubt_of, looking_again, missing_ledgers
from magnetar.bookie.network.fullness import Fullness, FullnessOptions
from magnetar.bookie.network.identity import Stamp, stamp_of
from magnetar.metadata.bookkeeper.registry import Cookie

BELONGING = Belonging("cluster", 5)
MINE = Cookie("here:3181", ("/data",), ("/data",), "cluster")


def test_a_new_bookie_is_stamped_and_an_old_one_is_let_in() -> None:
    assert stamp_of(MINE, None, None, disk_is_empty=True) is Stamp.BOTH
    assert stamp_of(MINE, MINE, MINE, disk_is_empty=False) is Stamp.NOTHING
    assert stamp_of(MINE, MINE, MINE, disk_is_empty=True) is Stamp.NOTHING


def test_a_bookie_stopped_between_its_stamps_gets_the_other_one() -> None:
    assert stamp_of(MINE, MINE, None, disk_is_empty=True) is Stamp.STORE


@pytest.mark.parametrize(
    ("on_disk", "in_store", "disk_is_empty", "words"),
    [
        (None, MINE, True, "was the disk lost"),
        (None, None, False, "does not know bookie"),
        (MINE, None, False, "does not know bookie"),
        (replace(MINE, instance_id="other"), MINE, False, "instance_id is other"),
        (MINE, replace(MINE, ledger_folders=("/elsewhere",)), False, "ledger_folders"),
        (MINE, replace(MINE, index_folders=("/x",)), False, "index folders differ"),
    ],
)
def test_a_bookie_with_another_disk_must_not_serve(
    on_disk: Cookie | None, in_store: Cookie | None, disk_is_empty: bool, words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        stamp_of(MINE, on_disk, in_store, disk_is_empty=disk_is_empty)


def test_cookies_that_lie_together_may_name_the_folder_that_they_came_from() -> None:
    former = replace(MINE, journal_folders=("/former",), ledger_folders=("/former",))
    with pytest.raises(StartupError, match="journal_folders"):
        stamp_of(MINE, former, former, disk_is_empty=False)
    assert stamp_of(MINE, former, former, disk_is_empty=False, moves=True) is Stamp.NOTHING
    assert stamp_of(MINE, None, None, disk_is_empty=True, moves=True) is Stamp.BOTH
    with pytest.raises(StartupError, match="another bookie"):
        stamp_of(MINE, former, MINE, disk_is_empty=False, moves=True)
    with pytest.raises(StartupError, match="bookie_id is there"):
        stamp_of(MINE, replace(former, bookie_id="there"), former, disk_is_empty=False, moves=True)
    with pytest.raises(StartupError, match="was the disk lost"):
        stamp_of(MINE, None, former, disk_is_empty=True, moves=True)


def test_a_full_disk_is_read_only_until_there_is_room() -> None:
    disk = Fullness(FullnessOptions(full_share=0.9, room_share=0.8))
    seen = [
        (disk.measured(100, free, has_room=room), disk.read_only)
        for free, room in [
            (50, True),
            (10, True),
            (15, True),
            (20, True),
            (21, True),
            (50, False),
            (50, True),
        ]
    ]
    assert seen == [
        (False, False),
        (True, True),
        (False, True),
        (False, True),
        (True, False),
        (True, True),
        (True, False),
    ]
    assert disk.measured(0, 0, has_room=True)


class Listing:
    """Ledgers that a listing names, and those that a direct look finds."""

    def __init__(self, listed: list[int], found: set[int], *, breaks: bool = False) -> None:
        self.listed = listed
        self.found = found
        self.breaks = breaks
        self.came_back: set[int] = set()
        """Found by each look but the first."""
        self.interrupted_after = 100
        """Looks at single ledgers after which the connection is another one."""
        self.looks = 0

    def connection_id(self) -> int:
        return self.looks // self.interrupted_after

    async def ledger_exists(self, ledger_id: int) -> bool:
        self.looks += 1
        found = ledger_id in self.found
        if ledger_id in self.came_back:
            self.found.add(ledger_id)
        return found

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in self.listed:
            yield ledger_id
        if self.breaks:
            raise MetadataError("the connection is lost")


def collected(
    listing: Listing, known: set[int], state: Belonging = BELONGING, *, deleted: list[int] | None = None
) -> tuple[list[int], set[int]]:
    """What one round deletes, and what is in quarantine then."""
    deleted = [] if deleted is None else deleted

    async def delete(ledger_id: int) -> None:
        deleted.append(ledger_id)

    surely = looking_again(listing, listing.connection_id(), delete)

    async def story() -> Belonging:
        missing = await missing_ledgers(known, listing)
        after, count = await collect(state, missing, surely, now_ms=1, elapsed_s=60, grace_s=100)
        assert count == len(deleted)
        return after

    return deleted, set(asyncio.run(story()).held)


def test_only_what_is_gone_for_certain_is_deleted() -> None:
    assert collected(Listing([1, 2], {1, 2}), {1, 2, 3}) == ([3], set())
    assert collected(Listing([1], {1, 2}), {1, 2, 3}) == ([3], set())
    assert collected(Listing([], set()), set()) == ([], set())


def test_a_listing_that_breaks_deletes_nothing() -> None:
    with pytest.raises(MetadataError):
        collected(Listing([], set(), breaks=True), {1, 2})


def test_a_ledger_that_is_found_right_before_it_goes_stays() -> None:
    listing = Listing([1], {1})
    listing.came_back = {2}
    assert collected(listing, {1, 2, 3}) == ([3], set())
    # In quarantine it stays there until a whole listing names it.
    listing = Listing([1], {1})
    listing.came_back = {2}
    due = replace(BELONGING, held={LedgerId(2): Held(1, 99)})
    assert collected(listing, {1, 2}, due) == ([], {2})


def test_an_interrupted_connection_ends_the_round() -> None:
    # After the listing; after the first look at each ledger; between the last looks at ledgers 2 and 3.
    for interrupted_after, gone in ((1, []), (3, []), (4, [2])):
        listing = Listing([1], {1})
        listing.interrupted_after = interrupted_after
        deleted: list[int] = []
        with pytest.raises(MetadataError, match="interrupted"):
            collected(listing, {1, 2, 3}, deleted=deleted)
        assert deleted == gone


def test_an_empty_listing_or_metadata_in_doubt_deletes_nothing() -> None:
    assert collected(Listing([], set()), {1, 2}) == ([], {1, 2})
    doubted = replace(BELONGING, doubt="an older copy")
    assert collected(Listing([1], {1}), {1, 2, 3}, doubted) == ([], {2, 3})
    # What waits goes on waiting though the doubt is over; what is deleted from now on goes at once.
    waiting = replace(BELONGING, held={LedgerId(2): Held(1, 30), LedgerId(4): Held(1, 99)})
    assert collected(Listing([1], {1}), {1, 2, 3}, waiting) == ([3], {2})
    assert collected(Listing([1], {1}), {1, 2}, replace(waiting, held={LedgerId(2): Held(1, 40)})) == (
        [2],
        set(),
    )
    assert collected(Listing([1], {1}), {1, 2}, replace(doubted, held={LedgerId(2): Held(1, 999)})) == (
        [],
        {2},
    )


def test_metadata_is_doubted_that_is_another_an_older_or_has_forgotten_the_bookie() -> None:
    assert doubt_of(BELONGING, "cluster", 5) == doubt_of(BELONGING, "cluster", 9) == ""
    assert doubt_of(Belonging(""), "cluster", 0) == ""
    assert "of cluster other, not of cluster" in doubt_of(BELONGING, "other", 5)
    assert "does not know this bookie" in doubt_of(BELONGING, "cluster", None)
    assert "generation 4, this bookie has seen 5" in doubt_of(BELONGING, "cluster", 4)
    assert doubt_of(replace(BELONGING, doubt="before"), "cluster", 9) == "before"
