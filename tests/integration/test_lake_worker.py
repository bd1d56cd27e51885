"""The worker for tables: a process that may end at any time."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from magnetar.lake.lake_values import LakeConflictError, LakeError, LakeSetupError
from magnetar.lake.process import WorkerProcess
from support.lake_tables import TOPIC, LakeFolder, record

pytestmark = pytest.mark.one_process("own")


def test_calls_and_an_end_in_the_middle(tmp_path: Path) -> None:
    folder = LakeFolder(tmp_path)
    one = folder.segment(1, [{"a": 1}], record(("a", "int")))
    two = folder.segment(2, [{"b": "x"}], record(("b", "string")))

    async def story() -> None:
        worker = WorkerProcess(folder.settings)
        assert worker.pid is None, "it starts with the first call"
        call = asyncio.ensure_future(worker.call("sync", log=folder.wanted(1, one).to_json()))
        while worker.pid is None:  # noqa: ASYNC110  # there is no notice of it
            await asyncio.sleep(0)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(LakeError, match="ended in the middle"):
            await call
        said: list[tuple[int, int]] = []
        # Another one takes its place; calls are answered in their order, however many wait.
        done, topics, checked = await asyncio.gather(
            worker.call("sync", log=folder.wanted(1, one).to_json()),
            worker.call("topics"),
            worker.call(
                "verify",
                lambda at, of: said.append((at, of)),
                topic=TOPIC,
                logs=[folder.wanted(1, one).to_json()],
            ),
        )
        assert (done["outcome"], topics, checked["problems"]) == ("changed", [TOPIC], [])
        assert (0, 1) in said
        with pytest.raises(LakeConflictError, match=r"value\.b"):
            await worker.call("sync", log=folder.wanted(2, one, two).to_json())
        with pytest.raises(LakeError, match="not a request of this worker"):
            await worker.call("nonsense", topic=TOPIC)
        await worker.close()
        with pytest.raises(LakeError):
            await worker.call("topics")

    asyncio.run(story())


def test_a_catalog_that_cannot_be_opened(tmp_path: Path) -> None:
    folder = LakeFolder(tmp_path)
    nowhere = {**folder.settings.properties, "uri": f"sqlite:///{tmp_path}/no/folder/catalog.db"}

    async def story() -> None:
        worker = WorkerProcess(replace(folder.settings, properties=nowhere), idle_s=0.05)
        with pytest.raises(LakeSetupError, match="cannot be opened"):
            await worker.call("topics")
        while worker.pid is not None:  # noqa: ASYNC110  # there is no notice of it
            await asyncio.sleep(0.01)
        await worker.close()

    asyncio.run(story())
