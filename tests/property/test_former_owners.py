"""Former owners of a topic's history that were paused: what they do when they go on harms no next owner.

An owner does each kind of work on a topic and is paused at each of its changes of a shared place, as by
SIGSTOP: before the change, or before it hears the answer. The next owner takes the topic over and does all
its own work; then the former one goes on to its end. Every message must be readable, from the objects alone
where the bookies have it no more, and what no list names must be found. Each rule of
docs/decisions/0039-history-on-a-cluster.md is broken once, and is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from fakes.managed_logs import NAME, read_all, until
from fakes.tiered import Row, TieredProcess, rows_of
from magnetar.base.errors import MagnetarError
from magnetar.managedlog.config import Retention
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_state import LogState
from magnetar.managedlog.orphan_objects import OrphanObjects
from magnetar.metadata.store import ANY_VERSION, BadVersionError
from magnetar.metadata.trust import MetadataTrust
from magnetar.tiered.context import OffloadContext, OffloadedCopy, segment_name
from magnetar.tiered.policy import OffloadPolicy

KEEP = Retention(ms=-1, size_bytes=-1)
LAG_MS = 60_000
POLICY = OffloadPolicy(threshold_bytes=0, deletion_lag_ms=LAG_MS)
CHANGES = frozenset({"put", "delete", "swap", "delete_recursive"})
TARGET_BYTES = 100 << 20


class Pause:
    """Stops a process at one of its changes until it is let go on."""

    def __init__(self) -> None:
        self.changes = 0
        self.reached = asyncio.Event()
        self.going = asyncio.Event()
        self._at: int | None = None
        self._answered = False

    def arm(self, at: int, *, answered: bool) -> None:
        """`at`: number of the change, from here on. `answered`: after it in place of before."""
        self.changes, self._at, self._answered = 0, at, answered

    async def pass_on(self, call: Callable[[], Awaitable[object]]) -> object:
        number, self.changes = self.changes, self.changes + 1
        if self._at is None or number < self._at:
            return await call()
        if number == self._at and self._answered:
            try:
                return await call()
            finally:
                await self._stopped()
        await self._stopped()
        return await call()

    async def _stopped(self) -> None:
        self.reached.set()
        await self.going.wait()


class Through:
    """A shared place, as a process sees it that may be paused."""

    def __init__(self, place: object, pause: Pause) -> None:
        self._place = place
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._place, name)
        if name not in CHANGES:
            return found

        async def call(*arguments: object, **options: object) -> object:
            return await self._pause.pass_on(lambda: found(*arguments, **options))

        return call

    async def list(self, folder: str) -> AsyncIterator[Any]:
        async for each in cast(Any, self._place).list(folder):
            yield each


class World:
    """A topic with its former and its next owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pause = Pause()
        first = self.first = self._process("first")
        # The former owner is the one whose requests can be held back.
        first.store = cast(Any, Through(first.store, self.pause))
        first.ledgers = cast(Any, Through(first.ledgers, self.pause))
        held = cast(Any, Through(first.objects, self.pause))
        first.tiering.open_store = lambda url: held
        first.logs._store, first.logs.ledgers = first.store, first.ledgers
        self.log: ManagedLog
        self.rows: list[Row] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while the former owner is paused, before the next one comes."""

    def _process(self, name: str, **options: object) -> TieredProcess:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        limits = {"entries_max_per_ledger": 4, "cache_bytes": 0}
        return TieredProcess(folder, policy=POLICY, **limits, **options)  # type: ignore[arg-type]

    def another(self, name: str) -> TieredProcess:
        """Another process on the same places."""
        first = self.first
        return self._process(
            name,
            objects=first.objects,
            ids=first.tiering.new_id,
            store=cast(Any, first.store)._place,
            ledgers=cast(Any, first.ledgers)._place,
            clock=first.clock,
        )

    async def fill(self) -> None:
        """A log with three sealed ledgers."""
        log, _ = await self.first.open()
        self.log = log
        begin(self.first, log)
        for number in range(3):
            self.first.clock.advance(100)
            log.append([b"%d/%d " % (number, entry) * 5 for entry in range(4)], [1, 3, 1, 1])
            await until(self.first, lambda number=number: len(log.info().ledgers) > number + 1)  # type: ignore[misc]
        log.append([b"tail"], None)
        await self.first.settle()
        self.rows = rows_of(await read_all(log))


def begin(process: TieredProcess, log: ManagedLog) -> None:
    log.retention = KEEP
    process.offloading.apply(log.offloading, {}, {})


async def finished(process: TieredProcess) -> None:
    """Waits for everything under way; a former owner may fail."""
    while process.tasks:
        tasks = list(process.tasks)
        process.tasks.difference_update(tasks)
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            assert done is None or isinstance(done, MagnetarError), done


async def copy(process: TieredProcess) -> None:
    """Copies all that is sealed, and has it leave the bookies."""
    await process.offloading.round()
    process.clock.advance(LAG_MS)
    await process.offloading.round()


async def merge(process: TieredProcess, log: ManagedLog) -> None:
    await process.offloading.merge(
        log.offloading, target_bytes=TARGET_BYTES, dry_run=False, progress=lambda done, total: None
    )


# ------------------------------------------------------------ what the former owner does


@dataclass(frozen=True)
class Story:
    """A kind of work: what comes before it, and the work."""

    prepare: Callable[[World], Awaitable[None]]
    work: Callable[[World], Awaitable[None]]
    may_be_empty: bool = False
    """Whether the topic may have been deleted in the end."""
    then_merges: bool = True
    """Whether the next owner merges objects too: what it merged, it needs no more."""


async def nothing(world: World) -> None:
    del world


async def copies(world: World) -> None:
    await copy(world.first)


async def lost_object(world: World) -> None:
    """A copy whose object is away while the former owner looks, and back afterwards."""
    await world.first.offloading.round()
    store = world.first.objects.store
    name = min(store.objects)
    kept, modified_ms = store.objects.pop(name), store._modified[name]

    def restored() -> None:
        store.objects[name], store._modified[name] = kept, modified_ms

    world.meanwhile = restored
    world.first.clock.advance(LAG_MS)


async def again(world: World) -> None:
    await world.first.offloading.round()
    world.first.clock.advance(LAG_MS)
    await world.first.offloading.round()


async def merges(world: World) -> None:
    await merge(world.first, world.log)
    world.first.clock.advance(LAG_MS)
    await world.first.offloading.round()


async def copied_and_ended(world: World) -> None:
    """A log that takes no more entries, so that the next owner adds no ledger to its list."""
    await copy(world.first)
    await world.log.terminate()
    await copy(world.first)
    assert world.log.state is LogState.TERMINATED


async def deletes(world: World) -> None:
    await world.first.logs.delete(NAME)


STORIES = {
    "copies": Story(nothing, copies),
    "copies again": Story(lost_object, again, then_merges=False),
    "merges": Story(copies, merges),
    "merges what has ended": Story(copied_and_ended, merges, then_merges=False),
    "deletes": Story(copies, deletes, may_be_empty=True),
}


# ------------------------------------------------------------ what happens then


async def next_owner(world: World, *, merges: bool) -> TieredProcess:
    """Takes the topic over and does all work on it."""
    process = world.another("second")
    log, _ = await process.open()
    begin(process, log)
    await finished(process)
    await copy(process)
    if merges:
        await merge(process, log)
        process.clock.advance(LAG_MS)
        await process.offloading.round()
    await finished(process)
    return process


async def check(world: World, process: TieredProcess, *, may_be_empty: bool) -> None:
    """Everything can be read, by this process and by one that comes later; nothing is left over for ever."""
    last = world.another("third")
    for each in (process, last):
        opened = each.logs.opened(NAME)
        log = opened if opened is not None else (await each.open())[0]
        rows = rows_of(await read_all(log))
        assert rows == world.rows or (may_be_empty and not rows)
        there = each.objects.store.objects
        for ledger in log.offloading.sealed():
            if ledger.offload is not None and ledger.offload.complete:
                held = OffloadedCopy(ledger.ledger_id, ledger.offload)
                for segment in ledger.offload.segments:
                    name = segment_name(NAME, held, segment)
                    assert len(there.get(name, b"")) == segment.file_bytes, (
                        f"{name} is not what the list says"
                    )
        await each.offloading.round()
        await finished(each)
        search = OrphanObjects(each.store, each.storage, trust=MetadataTrust(), clock=each.clock, age_ms=0)
        await search.round()
        named = {ledger.offload.attempt for ledger in log.offloading.sealed() if ledger.offload is not None}
        # What came late is in the list as to be deleted: the next opening does so.
        late = {made.context.attempt for made in log.offloading._stored.metadata.deleted_copies}
        assert named <= each.object_attempts() <= (named if each is last else named | late)


async def paused_once(folder: Path, story: Story, at: int, *, answered: bool) -> bool:
    """One run; returns whether the former owner came as far as this change."""
    world = World(folder)
    await world.fill()
    await story.prepare(world)
    await finished(world.first)
    world.pause.arm(at, answered=answered)
    work = asyncio.ensure_future(story.work(world))
    paused = asyncio.ensure_future(world.pause.reached.wait())
    await asyncio.wait((work, paused), return_when=asyncio.FIRST_COMPLETED)
    if not world.pause.reached.is_set():
        paused.cancel()
        await work
        return False
    world.meanwhile()
    process = await next_owner(world, merges=story.then_merges)
    world.pause.going.set()
    await asyncio.gather(work, return_exceptions=True)
    error = work.exception()
    # The store's own error is what a deletion meets whose list has changed.
    assert error is None or isinstance(error, MagnetarError | BadVersionError), repr(error)
    await finished(world.first)
    await check(world, process, may_be_empty=story.may_be_empty)
    return True


def run_all(folder: Path, story: Story) -> int:
    """Every change of the work, before and after it; returns their number."""
    at = 0
    while True:
        came = []
        for answered in (False, True):
            place = folder / f"{at}-{answered}"
            place.mkdir()
            came.append(asyncio.run(paused_once(place, story, at, answered=answered)))
        if not any(came):
            return at
        at += 1


@pytest.mark.parametrize("name", STORIES)
def test_a_former_owner_that_was_paused_harms_nothing(tmp_path: Path, name: str) -> None:
    assert run_all(tmp_path, STORIES[name]) >= 3, "the work has changes"


# ------------------------------------------------------------ each rule broken once


def no_withdrawal(patch: pytest.MonkeyPatch) -> None:
    """Objects of a copy are deleted while the list still names it as a copy."""
    patch.setattr(OffloadContext, "withdrawn", lambda self: self)
    patch.setattr("magnetar.tiered.attempt.OffloadAttempt.check", lambda self: None)


def no_change_at_take_over(patch: pytest.MonkeyPatch) -> None:
    """The next owner of a log that takes no entries deletes objects before it has changed the list."""
    start = ManagedLog.start

    async def unchanged(*_: object) -> None:
        """Leaves the list as it is."""

    async def quiet(self: ManagedLog, recovered: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            if self.state is not LogState.OPEN:
                inner.setattr(type(self.stored), "update", unchanged)
            await start(self, recovered)

    patch.setattr(ManagedLog, "start", quiet)


def no_versions(patch: pytest.MonkeyPatch) -> None:
    """The list is changed whatever it says by now."""
    from fakes.metadata import FakeMetadataStore

    put = FakeMetadataStore.put

    async def any_version(self: FakeMetadataStore, path: str, data: bytes, **options: Any) -> object:
        return await put(self, path, data, **{**options, "expected_version": ANY_VERSION})

    patch.setattr(FakeMetadataStore, "put", any_version)


def no_own_names(patch: pytest.MonkeyPatch) -> None:
    """Two owners give their objects the same names."""
    another = World.another

    def twin(self: World, name: str) -> TieredProcess:
        made = another(self, name)
        numbers = iter(range(1, 1000))
        from uuid import UUID

        made.offloading._new_id = lambda: UUID(int=next(numbers))
        return made

    patch.setattr(World, "another", twin)


BROKEN = {
    "a copy is withdrawn before its objects go": (no_withdrawal, ("copies again",)),
    "who takes over changes the list first": (no_change_at_take_over, ("merges what has ended",)),
    "the list is changed by version": (no_versions, ("copies", "merges")),
    "attempts have names of their own": (no_own_names, ("copies", "merges")),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_broken_rule_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    break_it, stories = BROKEN[rule]
    break_it(monkeypatch)
    noticed = 0
    for number, name in enumerate(stories):
        place = tmp_path / str(number)
        place.mkdir()
        try:
            run_all(place, STORIES[name])
        except (AssertionError, MagnetarError, InvalidLogDataError):
            noticed += 1
    assert noticed, f"nothing noticed that this is gone: {rule}"


def test_a_sweep_that_was_paused_deletes_nothing_that_is_named(tmp_path: Path) -> None:
    """Names are read after the objects: what is named later was not among them."""

    async def story() -> None:
        world = World(tmp_path)
        await world.fill()
        await copy(world.first)
        second = world.another("second")
        log, _ = await second.open()
        begin(second, log)
        held, going = asyncio.Event(), asyncio.Event()
        listed = second.objects.list

        async def slow(folder: str) -> AsyncIterator[Any]:
            async for each in listed(folder):
                yield each
            held.set()
            await going.wait()

        first = world.first
        first.tiering.storage._stores.clear()
        sweeping = cast(Any, Through(first.objects, Pause()))
        sweeping.list = slow
        first.tiering.open_store = lambda url: sweeping
        search = OrphanObjects(
            second.store, first.storage, trust=MetadataTrust(), clock=first.clock, age_ms=0
        )
        sweep = asyncio.ensure_future(search.round())
        await held.wait()
        await merge(second, log)
        first.clock.advance(LAG_MS)
        await second.offloading.round()
        going.set()
        await sweep
        await check(world, second, may_be_empty=False)

    asyncio.run(story())


def test_a_withdrawn_copy_is_none() -> None:
    from uuid import UUID

    context = OffloadContext(UUID(int=1), "file:///x", complete=True)
    assert not context.withdrawn().complete
    with pytest.raises(AssertionError):
        replace(context, local_deleted=True).withdrawn()
