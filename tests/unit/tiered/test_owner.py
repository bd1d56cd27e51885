"""Whose a store is: clones, old copies of metadata, crashes at each step, peers, claims."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from uuid import UUID

import pytest

from fakes.metadata import FakeMetadataStore
from fakes.tiered import FaultyStore, refusal
from magnetar.base.clock import ManualClock
from magnetar.metadata.store import Value
from magnetar.tiered.context import attempt_prefix
from magnetar.tiered.errors import ReadOnlyStoreError, StoreError
from magnetar.tiered.guarded import installation_id
from magnetar.tiered.owner import OwnerContext, Role, StoreOwner
from magnetar.tiered.ownership import RECORD, OwnerRecord
from magnetar.tiered.stores.memory import MemoryStore

PATH = "/magnetar/offload-stores/x"


class Killed(BaseException):
    """kill -9."""


class World:
    """One store, any number of installations and of their processes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.objects = FaultyStore(MemoryStore(self.clock))
        self.ids = itertools.count(1)
        self.alive: list[StoreOwner] = []
        """Processes that look at the record while another one waits."""

    def new_id(self) -> UUID:
        return UUID(int=next(self.ids))

    async def pause(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))
        for owner in self.alive:
            try:
                await owner.look()
            except StoreError:
                continue

    def process(
        self,
        metadata: FakeMetadataStore,
        *,
        private: bool = False,
        die_at: str = "",
        alive: bool = False,
        shared: bool = False,
    ) -> StoreOwner:
        def step(name: str) -> None:
            if name == die_at:
                raise Killed

        context = OwnerContext(
            metadata,
            self.clock,
            lambda: installation_id(metadata, self.new_id),
            self.new_id,
            self.pause,
            5.0,
            shared,
            step,
        )
        owner = StoreOwner(context, self.objects, PATH, private=private)
        if alive:
            self.alive.append(owner)
        return owner

    def record(self) -> OwnerRecord:
        return OwnerRecord.decode(self.objects.store.objects[RECORD])


def copy_of(metadata: FakeMetadataStore) -> FakeMetadataStore:
    """A clone, or a backup."""
    made = FakeMetadataStore()
    made.values = dict(metadata.values)
    return made


async def refused(owner: StoreOwner, match: str = "read-only") -> None:
    with pytest.raises(ReadOnlyStoreError, match=match):
        await owner.step()
    with pytest.raises(ReadOnlyStoreError, match=match):
        await owner.check()
    assert owner.role is Role.READ_ONLY


def test_an_ordinary_restart_needs_no_command() -> None:
    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        for _ in range(3):
            owner = world.process(metadata)
            await owner.step()
            await owner.check()
            await owner.release()
            assert world.record().released
        # After kill -9 as well: the process that had it says nothing.
        for _ in range(3):
            owner = world.process(metadata)
            await owner.check()
            assert owner.role is Role.OWNER

    asyncio.run(story())


def test_another_installation_is_refused() -> None:
    async def story() -> None:
        world = World()
        await world.process(FakeMetadataStore()).step()
        await refused(world.process(FakeMetadataStore()), "belongs to another installation")

    asyncio.run(story())


def test_of_two_that_come_at_once_one_has_it() -> None:
    async def story() -> None:
        world = World()
        both = [world.process(FakeMetadataStore()) for _ in range(2)]
        done = await asyncio.gather(*(owner.step() for owner in both), return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == ["NoneType", "ReadOnlyStoreError"]

    asyncio.run(story())


def test_a_clone_takes_nothing_from_the_living() -> None:
    """Copied in this moment, started at once, and again: the original goes on, also after its own restart."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        original = world.process(metadata, alive=True)
        await original.step()
        clone = copy_of(metadata)
        await refused(world.process(clone))
        await original.step()
        await original.check()
        world.alive.clear()
        await refused(world.process(clone), "with newer metadata")
        again = world.process(metadata)
        await again.step()
        await again.check()

    asyncio.run(story())


def test_a_clone_of_the_dead_makes_the_other_one_stale() -> None:
    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        await world.process(metadata).step()
        clone = copy_of(metadata)
        await world.process(clone).step()
        await refused(world.process(metadata))

    asyncio.run(story())


def test_the_one_that_runs_notices_who_claimed_the_store() -> None:
    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        original = world.process(metadata, alive=True)
        await original.step()
        clone = world.process(copy_of(metadata))
        await refused(clone)
        await clone.claim()
        await clone.check()
        assert clone.role is Role.OWNER
        await refused(original)
        await original.claim()
        await original.step()
        await refused(clone)

    asyncio.run(story())


def test_an_old_copy_of_metadata_is_noticed() -> None:
    """One object was written since: its name is in a list that the copy does not have."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        owner = world.process(metadata)
        await owner.step()
        backup = copy_of(metadata)
        await owner.step()
        await refused(world.process(backup), "an older copy")
        restored = world.process(backup)
        await restored.claim()
        holding = await restored.check()
        assert holding.adopted_ms == world.clock.now_ms(), "what is there is kept"
        await restored.claim(sweep_earlier=True)
        assert (await restored.check()).adopted_ms == 0

    asyncio.run(story())


def test_what_is_there_is_kept_whatever_this_machines_clock_says(tmp_path: Path) -> None:
    """Its clock is hours behind the store's: what was there before is told by the store."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        owner = world.process(metadata)
        await owner.step()
        (tmp_path / "object").write_bytes(b"of the earlier installation")
        await world.objects.put(attempt_prefix("a", 1, UUID(int=7)) + "-0.parquet", tmp_path / "object")
        there_ms = world.clock.now_ms()
        world.clock.step(-3 * 3_600_000)
        backup = copy_of(metadata)
        await owner.step()
        restored = world.process(backup)
        await restored.claim()
        assert (await restored.check()).adopted_ms >= there_ms

    asyncio.run(story())


def test_a_store_in_a_restored_data_folder_needs_no_command() -> None:
    """No other process reaches it; what the older metadata does not name is kept."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        owner = world.process(metadata, private=True)
        await owner.step()
        backup = copy_of(metadata)
        await owner.step()
        restored = world.process(backup, private=True)
        assert (await restored.check()).adopted_ms == world.clock.now_ms()
        await refused(world.process(FakeMetadataStore(), private=True), "another installation")

    asyncio.run(story())


@pytest.mark.parametrize("where", ["asked", "noted", "changed"])
@pytest.mark.parametrize("state", ["new", "earlier", "held"])
def test_crashes_while_a_store_is_taken(where: str, state: str) -> None:
    """The same metadata has it after each; a clone of that moment does not get it beside a living one."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        if state == "earlier":
            installation = await installation_id(metadata, world.new_id)
            await world.objects.swap(RECORD, f"{installation}\n".encode(), None)
        if state == "held":
            await world.process(metadata).step()
        dying = world.process(metadata, die_at=where)
        try:
            await dying.step()
        except Killed:
            pass
        else:
            assert (where, state == "held") == ("asked", False), "nobody is asked for what nobody holds"
        clone = copy_of(metadata)
        owner = world.process(metadata, alive=True)
        await owner.step()
        await owner.check()
        await refused(world.process(clone))
        await owner.check()

    asyncio.run(story())


def test_an_answer_that_got_lost_costs_nothing() -> None:
    """The record was changed, and no process was told so."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        owner = world.process(metadata)
        await owner.step()
        real = world.objects.store.swap

        async def swap(name: str, data: bytes, known: str | None) -> None:
            await real(name, data, known)
            raise refusal(name)

        world.objects.store.swap = swap  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await owner.step()
        world.objects.store.swap = real  # type: ignore[method-assign]
        await owner.step()
        await owner.check()
        await world.process(metadata).check()

    asyncio.run(story())


def test_brokers_of_one_cluster_share_it() -> None:
    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        peers = [world.process(metadata, alive=True) for _ in range(3)]
        for _ in range(5):
            await asyncio.gather(*(peer.step() for peer in peers))
        await asyncio.gather(*(peer.check() for peer in peers))
        late = world.process(metadata)
        await late.check()
        await asyncio.gather(*(peer.check() for peer in peers))

    asyncio.run(story())


def test_many_brokers_write_at_the_same_time() -> None:
    """Each write changes the record, and none of them gives up because the others do so too."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        peers = [world.process(metadata, alive=True, shared=True) for _ in range(12)]
        await asyncio.gather(*(peer.step() for peer in peers))
        for _ in range(3):
            await asyncio.gather(*(peer.step() for peer in peers))
            assert {peer.role for peer in peers} == {Role.OWNER}

    asyncio.run(story())


@pytest.mark.parametrize("shared", [False, True])
def test_a_store_that_is_not_mounted_is_not_begun_anew(shared: bool) -> None:
    """One broker of a cluster does not find what the others see: it writes nothing and takes nothing."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        first = world.process(metadata, shared=shared)
        await first.step()
        await first.step()
        record = world.objects.store.objects.pop(RECORD)
        second = world.process(metadata, shared=shared)
        if not shared:
            await second.step()
            return
        await refused(second, "not mounted here")
        assert RECORD not in world.objects.store.objects
        world.objects.store.objects[RECORD] = record
        await second.step()
        await first.step()
        # An operator who knows better has the last word.
        del world.objects.store.objects[RECORD]
        await refused(first, "another bucket")
        await first.claim()
        await first.check()

    asyncio.run(story())


def test_notes_of_peers_that_come_late_are_waited_for() -> None:
    """A server of the metadata service may be behind: its answer does not say that the store is foreign."""

    class Behind(FakeMetadataStore):
        late: dict[str, Value] | None = None

        async def get(self, path: str) -> Value | None:
            return await super().get(path) if self.late is None else self.late.get(path)

        async def sync(self) -> None:
            self.late = None

    async def story() -> None:
        world, metadata = World(), Behind()
        first, second = (world.process(metadata, shared=True) for _ in range(2))
        await first.step()
        before = dict(metadata.values)
        await first.step()
        await first.step()
        metadata.late = before
        await second.check()
        assert second.role is Role.OWNER
        metadata.late = before
        await second.look()
        assert second.role is Role.OWNER

    asyncio.run(story())


def test_two_clones_of_the_dead_come_at_once() -> None:
    """Both know the word and both ask: one of them has it in the end, and the other one knows."""

    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        await world.process(metadata).step()
        both = [world.process(copy_of(metadata)) for _ in range(2)]
        done = await asyncio.gather(*(owner.step() for owner in both), return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == ["NoneType", "ReadOnlyStoreError"]

    asyncio.run(story())


def test_a_store_without_an_answer_is_not_taken() -> None:
    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        owner = world.process(metadata)
        world.objects.fault = lambda call, name: refusal(name)
        with pytest.raises(StoreError):
            await owner.check()
        assert owner.role is Role.UNDECIDED
        world.objects.fault = lambda call, name: None
        await owner.check()

    asyncio.run(story())


@pytest.mark.parametrize("damage", [b"{", b"{}", b'{"format": 2}'])
def test_a_record_that_cannot_be_read_is_nobodys_to_take(damage: bytes) -> None:
    async def story() -> None:
        world = World()
        world.objects.store.objects[RECORD] = damage
        with pytest.raises(StoreError, match="cannot be read"):
            await world.process(FakeMetadataStore()).check()

    asyncio.run(story())


def test_a_record_that_somebody_deleted_is_made_anew() -> None:
    async def story() -> None:
        world, metadata = World(), FakeMetadataStore()
        owner = world.process(metadata)
        await owner.step()
        await world.objects.delete(RECORD)
        await owner.step()
        await owner.check()

    asyncio.run(story())


@pytest.mark.parametrize("call", ["check", "look"])
def test_a_broker_that_waits_between_record_and_note(call: str) -> None:
    """Peers write twice meanwhile: the note then has two later words, and the record is read again."""

    class Slow(FakeMetadataStore):
        async def get(self, path: str) -> Value | None:
            if path == PATH and slow:
                peer = slow.pop()
                await peer.step()
                await peer.step()
            return await super().get(path)

    slow: list[StoreOwner] = []

    async def story() -> None:
        world, metadata = World(), Slow()
        first, second = (world.process(metadata, shared=True) for _ in range(2))
        await first.step()
        await second.step()
        slow.append(first)
        await getattr(second, call)()
        assert second.role is Role.OWNER

    asyncio.run(story())
