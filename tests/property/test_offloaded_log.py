"""A log reads the same wherever its ledgers lie: generated lives, with crashes and a store that fails."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.managed_logs import read_all
from fakes.tiered import Row, TieredProcess, refusal, rows_of
from magnetar.base.ids import Position
from magnetar.managedlog.config import Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.tiered.policy import OffloadPolicy

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5)),
        st.tuples(st.just("round"), st.none()),
        st.tuples(st.just("failing round"), st.sampled_from(["put", "get", "size", "list", "delete"])),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("crash in a round"), st.integers(1, 8)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("look"), st.tuples(st.integers(0, 60), st.integers(1, 200), st.integers(1, 7))),
    ),
    max_size=25,
)


SMALL = [b"a" * 10, b"b" * 10, b"c" * 10, b"d" * 10]
"""A ledger whose copy is one small object."""
MERGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.just(SMALL)),
        st.tuples(st.just("round"), st.none()),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(
            st.just("crash in a merge"),
            st.sampled_from(["note", "write", "upload", "compare", "name", "done"]),
        ),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("look"), st.tuples(st.integers(0, 60), st.integers(1, 200), st.integers(1, 7))),
    ),
    max_size=12,
)


class KilledError(Exception):
    """The process ends here."""


class Life:
    """One log through many processes, and what it must hold."""

    def __init__(self, folder: Path) -> None:
        policy = OffloadPolicy(threshold_bytes=20, deletion_lag_ms=200)
        self.process = TieredProcess(
            folder, policy=policy, segment_bytes=60, entries_max_per_ledger=4, cache_bytes=0
        )
        self.log: ManagedLog
        self.wanted: list[bytes] = []

    async def open(self) -> None:
        self.log, _ = await self.process.open()
        self.log.retention = Retention(ms=-1, size_bytes=-1)
        self.process.offloading.apply(self.log.offloading, {}, {})

    async def append(self, entries: list[bytes]) -> None:
        self.process.clock.advance(10)
        self.log.append(list(entries), [1 + len(entry) % 3 for entry in entries])
        self.wanted += entries
        await self.process.settle()

    async def round(self) -> None:
        # Past every pause after a failure.
        self.process.clock.advance(4_000_000)
        await self.process.offloading.round()
        await self.process.settle()

    async def die_in_a_round(self, effect_number: int) -> None:
        count = len(self.process.effects) + effect_number

        def die(_: object) -> None:
            if len(self.process.effects) == count:
                raise KilledError

        self.process.tiering.on_effect = die
        with contextlib.suppress(KilledError):
            await self.round()
        await self.crash()

    async def merge(self) -> None:
        await self.process.offloading.merge(
            self.log.offloading, target_bytes=1 << 20, dry_run=False, progress=lambda done, total: None
        )

    async def die_in_a_merge(self, step: str) -> None:
        def die(at: str) -> None:
            if at == step:
                raise KilledError

        self.process.offloading.merger.step = die
        with contextlib.suppress(KilledError):
            await self.merge()
        await self.crash()

    async def crash(self) -> None:
        self.process = await self.process.crash()
        await self.open()

    async def restart(self) -> None:
        self.process = await self.process.restart()
        await self.open()

    async def look(self, where: tuple[int, int, int], rows: list[tuple[Position, Row]]) -> None:
        """One read from anywhere, within any limits, and the look-ups of its first entry."""
        if not rows:
            return
        number, bytes_max, entries_max = where
        at = number % len(rows)
        position, row = rows[at]
        found = rows_of(await self.log.read(position, bytes_max, entries_max))
        assert found == [row for _, row in rows[at : at + len(found)]]
        assert 1 <= len(found) <= entries_max
        assert await self.log.index_of(position) == row[3]
        assert await self.log.position_of_index(row[3]) == position
        first = next(place for place, other in rows if other[4] >= row[4])
        assert await self.log.position_of_time(row[4]) == first

    async def all(self) -> list[tuple[Position, Row]]:
        runs = await read_all(self.log)
        rows = [(Position(run.ledger_id, row[0]), row) for run in runs for row in rows_of([run])]
        assert [row[1] for _, row in rows] == self.wanted
        indexes = [row[3] for _, row in rows]
        assert indexes == sorted(set(indexes))
        return rows


@settings(max_examples=60)
@given(STEPS)
def test_a_log_reads_the_same_wherever_it_lies(steps: list[tuple[str, object]]) -> None:
    live(steps)


@settings(max_examples=40)
@given(MERGES)
def test_a_log_reads_the_same_while_its_history_is_merged(steps: list[tuple[str, object]]) -> None:
    live([*[("append", SMALL)] * 4, ("round", None), ("round", None), *steps])


def live(steps: list[tuple[str, object]]) -> None:
    async def story(folder: Path) -> None:
        life = Life(folder)
        await life.open()
        known: dict[Position, Row] = {}
        for what, value in steps:
            if what == "append":
                await life.append(value)  # type: ignore[arg-type]
            elif what == "round":
                await life.round()
            elif what == "failing round":
                objects = life.process.objects
                objects.fault = lambda call, name, failing=value: refusal() if call == failing else None  # type: ignore[misc]
                await life.round()
                objects.fault = lambda call, name: None
            elif what == "crash":
                await life.crash()
            elif what == "crash in a round":
                await life.die_in_a_round(value)  # type: ignore[arg-type]
            elif what == "restart":
                await life.restart()
            elif what == "merge":
                await life.merge()
            elif what == "crash in a merge":
                await life.die_in_a_merge(value)  # type: ignore[arg-type]
            rows = await life.all()
            for position, row in rows:
                assert known.setdefault(position, row) == row, "an entry changed"
            if what == "look":
                await life.look(value, rows)  # type: ignore[arg-type]
            life.log.check()
            life.process.storage.cache.check()
        # At peace everything but the newest lies in the store alone, and nothing else does.
        for _ in range(3):
            await life.round()
        await life.all()
        ledgers = life.log.info().ledgers
        named = {ledger.offload.attempt for ledger in ledgers if ledger.offload is not None}
        assert life.process.object_attempts() == named
        local = [ledger for ledger in ledgers if ledger.offload is None or not ledger.offload.local_deleted]
        assert sum(ledger.size_bytes for ledger in local[:-1]) <= 20
        await life.process.logs.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder)))
