"""Bookies beside the broker: each folder is the right one and as new as metadata, or none of them starts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.bookie.belonging import DamagedBelongingError, InMetadata
from magnetar.bookie.decisions import DECISIONS_FILE, Decisions, encode_decisions, read_decisions
from magnetar.bookie.network.entries import UNSURE_FILE
from magnetar.bookie.network.readmission import forget_readmission, read_readmission
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.ledger.beside import BesideGuard
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.membership import (
    MEMBER_FILE,
    Member,
    Ruling,
    decode_member,
    encode_member,
    in_words,
    rule,
)
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.bookkeeper.registry import Cookie
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.keys import BOOKIES_BESIDE
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import MUST_NOT_EXIST
from magnetar.metadata.trust import MetadataTrust
from magnetar.server.storage.storage_decisions import FolderDecisions

ME = Member("x", "b1")
BOOKIES = ["b1", "b2"]
METADATA = LedgerMetadata(LedgerState.OPEN, None, ((0, ("b1", "b2")),))


def test_the_file_comes_back_and_one_flipped_bit_is_noticed() -> None:
    data = encode_member(Member("x", "b1", 7, 8))
    assert decode_member(data) == Member("x", "b1", 7, 8)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedBelongingError):
            decode_member(bytes(damaged))


def test_no_crash_makes_a_pair_look_apart() -> None:
    """Each start, tick and stop may end after any of its steps; the next start always goes on."""
    for steps in product(range(4), repeat=4):
        mine: Member | None = None
        known: InMetadata | None = None
        for done in steps:
            assert rule(mine, known, ME) == Ruling()
            before = mine or ME
            generation = 1 + max(before.generation, before.begun, known.generation if known else 0)
            if done >= 1:
                mine = Member("x", "b1", before.generation, generation)
            if done >= 2:
                known = InMetadata("x", generation)
            if done >= 3:
                mine = Member("x", "b1", generation, generation)


@pytest.mark.parametrize(
    ("mine", "known", "words", "misses"),
    [
        (None, InMetadata("x", 3), "the folder of b1 is gone", True),
        (
            Member("x", "b1", 3, 3),
            InMetadata("x", 4),
            "is an older copy .generation 3, metadata is at 4",
            True,
        ),
        (DamagedBelongingError("MEMBER fails"), InMetadata("x", 4), "MEMBER fails", True),
        (Member("x", "b2", 3, 3), InMetadata("x", 3), "is that of b2: were they swapped", False),
        (Member("y", "b1", 3, 3), InMetadata("x", 3), "belongs to metadata y, not to x", False),
    ],
)
def test_what_does_not_belong_together_is_refused(
    mine: Member | None, known: InMetadata, words: str, misses: bool
) -> None:
    found = rule(mine, known, ME)
    assert found.misses == misses
    assert not found.doubt
    with pytest.raises(StartupError, match=words):
        raise StartupError(found.refusal)


def test_older_metadata_is_doubted() -> None:
    assert "generation 2, b1 is at 3" in rule(Member("x", "b1", 3, 3), InMetadata("x", 2), ME).doubt
    assert "does not know b1" in rule(Member("x", "b1", 3, 3), None, ME).doubt


def test_the_words_change_with_everything_that_they_are_about() -> None:
    member, known = Member("x", "b1", 3, 3), InMetadata("x", 3)
    texts = {
        in_words({"b1": mine}, {"b1": theirs}, doubt)
        for mine in (None, member, Member("x", "b2", 3, 3), Member("x", "b1", 4, 4), Member("y", "b1", 3, 3))
        for theirs in (None, known, InMetadata("x", 4), InMetadata("y", 3))
        for doubt in ("", "older")
    }
    assert len(texts) == 5 * 4 * 2


class Running:
    """The broker's side of one process."""

    def __init__(self, data: Path, metadata: EmbeddedMetadataStore, registry: FolderBookieRegistry) -> None:
        self.metadata = metadata
        self.registry = registry
        self.trust = MetadataTrust()
        self.guard = BesideGuard(data / "bookies", registry, metadata, self.trust)


@asynccontextmanager
async def process(data: Path, *, clean: bool = True) -> AsyncIterator[Running]:
    file = data / "metadata" / "metadata.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    metadata = EmbeddedMetadataStore.open(file, clock=ManualClock(), durable=False)
    try:
        tree = BookKeeperTree()
        await initialize_cluster(metadata, tree, "one cluster")
        registry = FolderBookieRegistry(data / "bookies", file, tree)
        registry.initialize("one cluster")
        running = Running(data, metadata, registry)
        await running.guard.begin("one cluster", BOOKIES)
        for bookie in BOOKIES:
            # As the bookies' processes do.
            folder = data / "bookies" / bookie
            options = StoreOptions(segment_bytes=1 << 20)
            store = await SegmentStore.open(folder, options=options, durability=Durability.VOLATILE)
            await store.close()
            if await registry.cookie(bookie) is None:
                cookie = Cookie(bookie, (bookie,), (bookie,), "one cluster")
                await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
        yield running
        if clean:
            await running.guard.end()
    finally:
        await metadata.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


async def refused(data: Path, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        async with process(data):
            pass


def test_an_older_copy_of_one_folder_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "bookies" / "b2"

    async def story() -> None:
        async with process(tmp_path):
            pass
        shutil.copytree(folder, tmp_path / "older")
        async with process(tmp_path, clean=False):
            pass
        shutil.move(folder, tmp_path / "right")
        shutil.copytree(tmp_path / "older", folder)
        await refused(tmp_path, r"b2 is an older copy .*storage accept")
        # Found after all: a refusal changed nothing.
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "right", folder)
        async with process(tmp_path) as again:
            assert again.trust.is_trusted
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "older", folder)
        FolderDecisions(tmp_path).accept(FolderDecisions(tmp_path).found())
        async with process(tmp_path):
            # What it does not hold is not certain to be absent.
            assert (folder / UNSURE_FILE).exists()
            assert not (tmp_path / "bookies" / "b1" / UNSURE_FILE).exists()
        async with process(tmp_path):
            pass

    run(story)


def test_what_was_accepted_is_what_was_there_then(tmp_path: Path) -> None:
    folder = tmp_path / "bookies" / "b1"

    async def story() -> None:
        async with process(tmp_path):
            pass
        shutil.copytree(folder, tmp_path / "older")
        async with process(tmp_path):
            pass
        shutil.copytree(folder, tmp_path / "later")
        async with process(tmp_path):
            pass
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "later", folder)
        FolderDecisions(tmp_path).accept(FolderDecisions(tmp_path).found())
        # Another copy comes in its place: that one was not accepted.
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "older", folder)
        await refused(tmp_path, "b1 is an older copy")
        assert not (folder / UNSURE_FILE).exists()

    run(story)


def test_swapped_folders_are_refused_and_nobody_can_accept_them(tmp_path: Path) -> None:
    one, two = tmp_path / "bookies" / "b1", tmp_path / "bookies" / "b2"

    async def story() -> None:
        async with process(tmp_path):
            pass
        one.rename(tmp_path / "aside")
        two.rename(one)
        (tmp_path / "aside").rename(two)
        await refused(tmp_path, r"the folder of b1 is that of b2")
        FolderDecisions(tmp_path).accept(FolderDecisions(tmp_path).found())
        await refused(tmp_path, r"the folder of b2 is that of b1")

    run(story)


def test_a_folder_that_is_gone_is_made_anew_when_somebody_accepts_that(tmp_path: Path) -> None:
    folder = tmp_path / "bookies" / "b1"

    async def story() -> None:
        async with process(tmp_path):
            pass
        shutil.rmtree(folder)
        await refused(tmp_path, "the folder of b1 is gone")
        FolderDecisions(tmp_path).accept(FolderDecisions(tmp_path).found())
        async with process(tmp_path) as again:
            # Its cookie was made anew, by the new folder.
            assert await again.registry.cookie("b1") is not None
            assert (folder / UNSURE_FILE).exists()

    run(story)


def test_older_metadata_starts_in_doubt_until_somebody_decides(tmp_path: Path) -> None:
    file = tmp_path / "metadata" / "metadata.db"

    async def story() -> None:
        async with process(tmp_path):
            pass
        copy = file.read_bytes()
        async with process(tmp_path):
            pass
        file.write_bytes(copy)
        for _ in range(2):
            async with process(tmp_path, clean=False) as again:
                assert "older copy" in (again.trust.doubt or "")
                assert "older copy" in again.registry.doubt()
        async with process(tmp_path) as last:
            trusted = []
            for accepted in ("something else", FolderDecisions(tmp_path).found()):
                FolderDecisions(tmp_path).accept(accepted)
                await last.guard.decide()
                trusted.append(last.trust.is_trusted)
            assert trusted == [False, True]
            # The bookies are told as well.
            for bookie in BOOKIES:
                assert read_decisions(tmp_path / "bookies" / bookie / DECISIONS_FILE).accept
        async with process(tmp_path) as after:
            assert after.trust.is_trusted
            assert after.registry.doubt() == ""

    run(story)


def test_a_damaged_note_is_refused_until_somebody_accepts(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path):
            pass
        file = tmp_path / "bookies" / "b1" / MEMBER_FILE
        file.write_bytes(file.read_bytes()[1:])
        await refused(tmp_path, "fails its checksum")
        decided = tmp_path / "bookies" / DECISIONS_FILE
        decided.write_bytes(encode_decisions(Decisions(accept=True)))
        async with process(tmp_path):
            assert decode_member(file.read_bytes()).bookie == "b1"
            assert not decided.exists()

    run(story)


def test_a_bookie_is_readmitted_at_the_next_start_and_not_while_metadata_is_doubted(tmp_path: Path) -> None:
    file, bookie = tmp_path / "metadata" / "metadata.db", tmp_path / "bookies" / "b1"

    async def story() -> None:
        async with process(tmp_path) as first:
            await TreeLedgerRegistry(first.metadata, BookKeeperTree()).create(METADATA, 17)
        copy = file.read_bytes()
        async with process(tmp_path) as second:
            FolderDecisions(tmp_path).readmit("b1")
            await second.guard.decide()
            assert read_readmission(bookie) is None, "its process may be serving"
        file.write_bytes(copy)
        async with process(tmp_path):
            assert read_readmission(bookie) is None, "metadata that is older may not name what there was"
        decisions = FolderDecisions(tmp_path)
        decisions.accept(decisions.found())
        decisions.readmit("b1")
        async with process(tmp_path):
            assert read_readmission(bookie) == {17}
            assert read_readmission(bookie.with_name("b2")) is None
        forget_readmission(bookie)
        async with process(tmp_path):
            assert read_readmission(bookie) is None, "it was said for one start"
        with pytest.raises(StartupError, match="no bookie b3"):
            FolderDecisions(tmp_path).readmit("b3")

    run(story)


def test_a_hundred_bookies_are_more_than_one_transaction_holds(tmp_path: Path) -> None:
    bookies = [f"b{number}" for number in range(100)]

    async def story() -> None:
        metadata = MemoryMetadataStore(ManualClock())
        registry = FolderBookieRegistry(tmp_path / "bookies", tmp_path / "metadata.db", BookKeeperTree())
        registry.initialize("one cluster")
        guard = BesideGuard(tmp_path / "bookies", registry, metadata, MetadataTrust())
        await guard.begin("one cluster", bookies)
        assert sorted(await metadata.children(BOOKIES_BESIDE)) == sorted(bookies)

    run(story)
