"""As many processes as functions have instances: what begins, ends and begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.functions.config.function_config import ConsumerConfig, FunctionConfig
from magnetar.functions.errors import NoOwnerError, NoSuchInstanceError
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.ports import StoredFunction
from magnetar.functions.workers.function_workers import LocalFunctionWorkers
from magnetar.functions.workers.output_log import OutputLog
from magnetar.functions.workers.plans import WorkerPlace
from magnetar.runtime.tasks import pause, yield_loop

F = StoredFunction(
    tenant="public",
    namespace="default",
    name="f",
    version=0,
    config=FunctionConfig(
        tenant="public", namespace="default", name="f", class_name="f", inputs={"in": ConsumerConfig()}
    ),
    package=Path("f.py"),
)


class FakeProcess:
    """An instance whose life the test leads."""

    def __init__(self, plan: InstancePlan, living: set[str]) -> None:
        self.plan = plan
        self.status: dict[str, object] = {"state": "RUNNING"}
        self.is_running = False
        self.answered_s = 0.0
        self.pid = 7
        self.told: list[Mapping[str, object]] = []
        self._living = living
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        own = f"{self.plan.full_name}/{self.plan.instance}"
        assert own not in self._living, "two processes of one instance never run at the same time"
        self._living.add(own)
        self.is_running = True

    async def ended(self) -> str:
        return await asyncio.shield(self._end)

    def end(self, error: str) -> None:
        if not self._end.done():
            self._end.set_result(error)

    async def stop(self) -> None:
        await yield_loop()
        self.end("")

    def kill(self) -> None:
        self.end("killed")

    async def close(self) -> None:
        await yield_loop()
        self._living.remove(f"{self.plan.full_name}/{self.plan.instance}")

    def tell(self, what: Mapping[str, object]) -> None:
        self.told.append(what)

    async def ask(self) -> bool:
        return True

    async def stack(self) -> str:
        return ""


class Bench:
    """Workers, their catalogue and their processes."""

    def __init__(self, folder: Path) -> None:
        self.wanted: list[StoredFunction] = []
        self.made: list[FakeProcess] = []
        self.tokens: list[str] = []
        self.owned = True
        self._changed = asyncio.Event()
        self._living: set[str] = set()
        place = WorkerPlace(service_url="pulsar://nowhere:1", admin_url="", folder=folder)
        self.workers = LocalFunctionWorkers(self, lambda: place, self, self._host)

    def _host(self, plan: InstancePlan, output: OutputLog) -> FakeProcess:
        self.made.append(FakeProcess(plan, self._living))
        return self.made[-1]

    async def functions(self) -> list[StoredFunction]:
        return list(self.wanted)

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def issue(self, function: StoredFunction) -> str:
        if not self.owned:
            raise NoOwnerError(function.full_name)
        self.tokens.append(f"token-{len(self.tokens)}")
        return self.tokens[-1]

    def withdraw(self, token: str) -> None:
        self.tokens.remove(token)

    def want(self, *functions: StoredFunction) -> None:
        self.wanted = list(functions)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await pause(0.001)

    def running(self) -> list[tuple[int, int]]:
        """Version and number of those that run."""
        return sorted((each.plan.version, each.plan.instance) for each in self.made if not each._end.done())


Story = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def told(tmp_path: Path) -> Callable[[Story], None]:
    def tell(story: Story) -> None:
        async def all_of_it() -> None:
            bench = Bench(tmp_path)
            bench.workers.start()
            try:
                await story(bench)
            finally:
                await bench.workers.close()
            assert (bench.running(), bench.tokens) == ([], [])

        asyncio.run(all_of_it())

    return tell


def test_instances_follow_the_catalogue(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        two = replace(F, config=replace(F.config, parallelism=2))
        bench.want(two)
        await bench.until(lambda: bench.running() == [(0, 0), (0, 1)])
        bench.want(replace(two, stopped=frozenset({0})))
        await bench.until(lambda: bench.running() == [(0, 1)])
        assert [
            each.running for each in await bench.workers.status(replace(two, stopped=frozenset({0})))
        ] == [
            False,
            True,
        ]
        bench.want()
        await bench.until(lambda: not bench.running())

    told(story)


def test_a_newer_version_begins_when_the_older_one_has_ended(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.want(F)
        await bench.until(lambda: bench.running() == [(0, 0)])
        for version in (1, 2):
            bench.want(replace(F, version=version))
        await bench.until(lambda: bench.running() == [(2, 0)])

    told(story)


def test_one_that_ends_by_itself_begins_again_and_says_why(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.want(F)
        await bench.until(lambda: len(bench.made) == 1)
        bench.made[0].end("the traceback")
        await bench.until(lambda: len(bench.made) == 2)
        (status,) = await bench.workers.status(F)
        assert (status.running, status.restarts) == (True, 1)
        bench.made[1].is_running = False
        (status,) = await bench.workers.status(F)
        assert (status.state, status.error) == ("STARTING", "the traceback")

    told(story)


def test_a_restart_does_not_wait_for_the_pause(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.want(F)
        await bench.until(lambda: bool(bench.running()))
        for _ in range(3):
            before = len(bench.made)
            await bench.workers.restart(F, 0)
            await bench.until(lambda: len(bench.made) > before and bool(bench.running()))  # noqa: B023  # called at once
        with pytest.raises(NoSuchInstanceError):
            await bench.workers.restart(F, 5)

    told(story)


def test_without_an_owner_nothing_runs_and_the_status_says_so(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.owned = False
        bench.want(F)
        for _ in range(1000):
            (status,) = await bench.workers.status(F)
            if status.error:
                break
            await pause(0.001)
        assert (status.state, bench.made) == ("FAILED", [])
        assert "created without authentication" in status.error

    told(story)


def test_an_end_waits_for_all_instances_and_forgets_the_state(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.want(F)
        await bench.until(lambda: bool(bench.running()))
        await bench.workers.state_put(F, "k", b"v")
        found = await bench.workers.state_get(F, "k")
        assert found is not None
        assert found.value == b"v"
        bench.wanted = []
        await bench.workers.end(F, forget=True)
        assert bench.running() == []
        assert await bench.workers.state_get(F, "k") is None

    told(story)


def test_figures_do_not_wait_for_instances(told: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.want(F)
        await bench.until(lambda: bool(bench.running()))
        (figures,) = bench.workers.figures()
        assert (figures.running, figures.told) == (True, {"state": "RUNNING"})
        assert bench.made[0].told == [{"do": "status"}]

    told(story)
