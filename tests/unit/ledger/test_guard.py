"""Messages that metadata lost are kept, ids are used once, and what was deleted on purpose goes at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError, StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import BELONGS_FILE, decode
from magnetar.bookie.decisions import DECISIONS_FILE, Decisions, encode_decisions
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.ledger.embedded import EmbeddedLedgers
from magnetar.ledger.guard import LedgerGuard
from magnetar.ledger.listing import first_unreserved
from magnetar.ledger.paths import DELETIONS, ID_GENERATOR, deletion_path, ledger_path
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.trust import MetadataTrust

GRACE_S = 3_600


class Quiet:
    """A listener that needs nothing."""

    def durable(self, last_entry: int) -> None:
        pass

    def failed(self, error: Exception) -> None:
        pass


class Running:
    """One process."""

    def __init__(self, store: SegmentStore, metadata: EmbeddedMetadataStore) -> None:
        self.store = store
        self.metadata = metadata
        self.trust = MetadataTrust()
        self.damaged = False
        self.named_meanwhile: tuple[str, bytes] | None = None
        """A value that comes back while all of metadata is looked through."""
        clock = ManualClock()
        self.guard = LedgerGuard(store, metadata, clock, self.trust, grace_s=GRACE_S, check=self._check)
        self.ledgers = EmbeddedLedgers(store, metadata, clock, guard=self.guard)

    async def _check(self) -> None:
        if self.damaged:
            raise CorruptDataError("metadata.db", 0, "a row")
        if self.named_meanwhile is not None:
            await self.metadata.put(*self.named_meanwhile)

    async def write(self) -> int:
        """A closed ledger with an entry; returns its id."""
        writer = await self.ledgers.create(Quiet(), {})
        writer.append([b"entry"], None, 0, 1)
        await writer.close()
        return writer.ledger_id

    async def look(self, seen_s: float) -> None:
        """A look, so many seconds after the last one."""
        if self.guard._looked_s is not None:
            self.guard._looked_s -= seen_s
        await self.guard.look()

    @property
    def held(self) -> set[int]:
        return set(decode((self.store.directory / BELONGS_FILE).read_bytes()).held)

    async def forget(self, *ledger_ids: int) -> None:
        """Metadata loses ledgers."""
        for ledger_id in ledger_ids:
            await self.metadata.delete(ledger_path(ledger_id))


@asynccontextmanager
async def process(folder: Path, *, clean: bool = True) -> AsyncIterator[Running]:
    store = await SegmentStore.open(
        folder / "bookie", options=StoreOptions(segment_bytes=1 << 20), durability=Durability.VOLATILE
    )
    metadata = EmbeddedMetadataStore.open(folder / "metadata.db", clock=ManualClock(), durable=False)
    try:
        running = Running(store, metadata)
        await running.guard.begin()
        yield running
        if clean:
            await running.guard.end()
    finally:
        await metadata.close()
        await store.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def decide(folder: Path, decisions: Decisions) -> None:
    (folder / "bookie" / DECISIONS_FILE).write_bytes(encode_decisions(decisions))


@pytest.mark.parametrize("value", [b"-1", b"9" * 5_000, b"\x00\xff"])
def test_a_damaged_generator_of_ids_is_replaced_by_what_the_folder_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    """Ids of deleted ledgers are not assigned again either: the existing ones do not tell them."""

    async def story() -> None:
        async with process(tmp_path) as running:
            kept, deleted = await running.write(), await running.write()
            await running.ledgers.delete(deleted)
            given = running.guard.ids_end
            assert kept < deleted < given
        async with process(tmp_path) as running:
            await running.metadata.put(ID_GENERATOR, value)
            assert await running.write() == given
            assert await running.write() == given + 1
            stored = await running.metadata.get(ID_GENERATOR)
            assert stored is not None
            assert int(stored.data) == running.guard.ids_end > given
        assert ID_GENERATOR in caplog.text

    run(story)


def test_a_damaged_generator_of_ids_is_refused_where_no_folder_knows(tmp_path: Path) -> None:
    async def story() -> None:
        metadata = MemoryMetadataStore(ManualClock())
        await metadata.put(ID_GENERATOR, b"-1")
        stored = await metadata.get(ID_GENERATOR)
        with pytest.raises(DamagedDocumentError, match=ID_GENERATOR):
            await first_unreserved(metadata, stored, None)
        await metadata.put(ledger_path(LedgerId(40)), b"damaged as well")
        assert await first_unreserved(metadata, stored, LedgerId(7)) == 41

    run(story)


def test_what_metadata_lost_is_kept_and_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with process(tmp_path) as one:
            lost, kept = await one.write(), await one.write()
            value = await one.metadata.get(ledger_path(lost))
            assert value is not None
            await one.forget(lost)
        async with process(tmp_path) as two:
            await two.look(0)
            assert two.held == {lost}
            assert f"ledger {lost} of 1 entries, 5 bytes is not named by metadata" in caplog.text
            assert two.store.ledger_ids() == {lost, kept}
            await two.metadata.put(ledger_path(lost), value.data)
            await two.look(1)
            assert two.held == set()
            reader = await two.ledgers.open(lost)
            [found] = await reader.read(0, 0, 100)
            assert found.entries == [b"entry"]

    with caplog.at_level(logging.WARNING):
        run(story)


def test_it_goes_when_it_was_seen_for_the_grace_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with process(tmp_path) as one:
            lost, kept = await one.write(), await one.write()
            await one.forget(lost)
            await one.look(0)
            await one.look(GRACE_S / 2)
        async with process(tmp_path) as two:
            # A start does not begin the period anew, nor does the time in which nothing ran count.
            await two.look(10 * GRACE_S)
            await two.look(GRACE_S / 2 - 10)
            assert two.held == {lost}
            two.damaged = True
            await two.look(100)
            assert two.held == {lost}
            assert "a row" in (two.trust.doubt or "")
            two.damaged = False
            await two.look(1)
            assert two.held == set()
            assert two.store.ledger_ids() == {kept}
            assert f"ledger {lost} of 1 entries, 5 bytes is deleted from the quarantine" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(story)


def test_a_deletion_that_a_crash_cut_short_is_done_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as one:
            ledger_ids = [await one.write() for _ in range(3)]
            doomed = ledger_ids[1]
            tombstone, one.store.delete = one.store.delete, _crash  # type: ignore[method-assign]  # the crash
            with pytest.raises(KeyboardInterrupt):
                await one.ledgers.delete(doomed)
            one.store.delete = tombstone  # type: ignore[method-assign]  # for the end
            assert one.store.ledger_ids() == set(ledger_ids)
        async with process(tmp_path) as two:
            await two.look(0)
            assert two.held == set()
            assert two.store.ledger_ids() == set(ledger_ids) - {doomed}
            assert await two.metadata.children(DELETIONS) == []
            await two.ledgers.delete(ledger_ids[0])
            assert not await two.metadata.exists(deletion_path(ledger_ids[0]))
            assert two.store.ledger_ids() == {ledger_ids[2]}

    run(story)


def test_metadata_in_doubt_finishes_no_deletion(tmp_path: Path) -> None:
    """An older copy may hold a note of a deletion whose id was given away again since."""

    async def story() -> None:
        async with process(tmp_path) as one:
            kept = await one.write()
            await one.forget(kept)
            await one.metadata.put(deletion_path(kept), b"")
            one.trust.doubted("a test", "an older copy")
            await one.look(0)
            assert one.store.ledger_ids() == {kept}
            assert await one.metadata.exists(deletion_path(kept))
            one.trust.cleared("a test")
            await one.look(1)
            assert one.store.ledger_ids() == set()

    run(story)


def test_a_ledger_that_is_named_again_at_the_last_moment_is_not_deleted(tmp_path: Path) -> None:
    """The look at all of metadata, right before, takes its time."""

    async def story() -> None:
        async with process(tmp_path) as one:
            lost = await one.write()
            value = await one.metadata.get(ledger_path(lost))
            assert value is not None
            await one.forget(lost)
            await one.look(0)
            one.named_meanwhile = (ledger_path(lost), value.data)
            await one.look(GRACE_S + 1)
            assert one.store.ledger_ids() == {lost}
            await one.look(1)
            assert one.held == set()

    run(story)


def test_a_ledgers_metadata_goes_before_its_entries(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as one:
            ledger_id = await one.write()
            held: list[bool] = []
            one.metadata.watch(
                ledger_path(ledger_id), lambda _: held.append(one.store.segments.holds(ledger_id))
            )
            await one.ledgers.delete(ledger_id)
            assert held == [True]
            assert not one.store.segments.holds(ledger_id)

    run(story)


async def _crash(ledger_id: int) -> None:
    raise KeyboardInterrupt


def test_older_metadata_starts_and_costs_nothing_until_somebody_decides(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"

    async def story() -> None:
        async with process(tmp_path) as one:
            first = await one.write()
        copy = file.read_bytes()
        async with process(tmp_path) as two:
            later = await two.write()
        file.write_bytes(copy)
        async with process(tmp_path) as three:
            assert "older copy" in (three.trust.doubt or "")
            await three.look(0)
            await three.look(2 * GRACE_S)
            assert three.held == {later}
            # Ids go on above what the folder has seen, not above what the copy knows.
            assert await three.write() > later
            assert three.store.ledger_ids() >= {first, later}
        async with process(tmp_path) as four:
            assert not four.trust.is_trusted
            decide(tmp_path, Decisions(accept=True))
            await four.guard.decide()
            assert four.trust.is_trusted
            assert four.held == {later}
            await four.look(0)
            await four.look(1)
            assert four.held == set()

    run(story)


def test_ids_that_were_given_away_and_left_nothing_are_not_given_again(tmp_path: Path) -> None:
    """Their ledgers were deleted, or offloaded: names in an object store hold these ids."""
    file = tmp_path / "metadata.db"

    async def story() -> None:
        async with process(tmp_path):
            pass
        copy = file.read_bytes()
        used = []
        async with process(tmp_path, clean=False) as two:
            for _ in range(3):
                used.append(await two.write())
                await two.ledgers.delete(used[-1])
        for segment in (tmp_path / "bookie" / "segments").iterdir():
            segment.unlink()
        file.write_bytes(copy)
        async with process(tmp_path) as three:
            # What lies elsewhere is doubted as well, though nothing lies here.
            assert not three.trust.is_trusted
            assert await three.write() > max(used)

    run(story)


def test_ids_of_what_lies_there_are_not_given_again_though_nobody_noted_them(tmp_path: Path) -> None:
    """The identity is lost and the metadata an older copy: what tells of the later ledger is its entries."""
    file = tmp_path / "metadata.db"

    async def story() -> None:
        async with process(tmp_path) as one:
            await one.write()
        copy = file.read_bytes()
        async with process(tmp_path) as two:
            later = await two.write()
        file.write_bytes(copy)
        (tmp_path / "bookie" / BELONGS_FILE).unlink()
        decide(tmp_path, Decisions(accept=True))
        async with process(tmp_path) as three:
            assert three.guard.ids_end > later
            assert await three.write() > later

    run(story)


def test_foreign_metadata_is_refused_and_both_sides_stay_as_they_are(tmp_path: Path) -> None:
    async def story() -> None:
        ours, other = tmp_path / "ours", tmp_path / "other"
        ours.mkdir()
        other.mkdir()
        async with process(ours) as one:
            await one.write()
        async with process(other) as two:
            await two.write()
        right = (ours / "metadata.db").read_bytes()
        (ours / "metadata.db").write_bytes((other / "metadata.db").read_bytes())
        for _ in range(2):
            with pytest.raises(StartupError, match="belongs to metadata"):
                async with process(ours):
                    pass
        (ours / "metadata.db").unlink()
        with pytest.raises(StartupError, match="is missing"):
            async with process(ours):
                pass
        (ours / "metadata.db").write_bytes(right)
        async with process(ours) as again:
            await again.look(0)
            assert again.held == set()
            assert again.trust.is_trusted

    run(story)


def test_a_damaged_identity_is_refused_until_somebody_accepts_the_metadata(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as one:
            lost = await one.write()
            await one.write()
            await one.forget(lost)
            await one.look(0)
        file = tmp_path / "bookie" / BELONGS_FILE
        file.write_bytes(file.read_bytes()[1:])
        with pytest.raises(StartupError, match="fails its checksum"):
            async with process(tmp_path):
                pass
        decide(tmp_path, Decisions(accept=True))
        async with process(tmp_path) as two:
            assert not (tmp_path / "bookie" / DECISIONS_FILE).exists()
            await two.look(0)
            assert two.held == {lost}

    run(story)


def test_somebody_decides_what_goes_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as one:
            lost, kept, named = await one.write(), await one.write(), await one.write()
            await one.forget(lost, kept)
            await one.look(0)
            # One that is not in quarantine is never touched.
            decide(tmp_path, Decisions(delete=frozenset({lost, named})))
            await one.guard.decide()
            assert one.held == {kept}
            assert one.store.ledger_ids() == {kept, named}
            assert one.guard.given_up == 1

    run(story)
