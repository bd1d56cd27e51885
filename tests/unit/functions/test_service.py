"""A start finds the files that records name, and says when nothing runs functions."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue.package_name import PackageName
from magnetar.functions.catalogue.records import FunctionRecord, PackageRecord
from magnetar.functions.refusals import NoWorkersError
from magnetar.functions.service import opened
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from support.functions import config, files_in, run, stored

N = NamespaceName("public", "default")


def test_a_start_keeps_what_functions_packages_and_uploads_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        clock = ManualClock()
        store, files = MemoryMetadataStore(clock), files_in(tmp_path)
        first = await opened(store, files, clock)
        await first.catalogue.create(N, FunctionRecord(config(), await stored(files)))
        await first.packages.add(PackageName.of("sink", N, "p", "1"), PackageRecord(await stored(files)))
        await first.packages.upload("path", await stored(files))
        await store.put(keys.function(N, "bad"), b"{")
        left = await stored(files)
        first.close()
        with caplog.at_level(logging.WARNING, "magnetar.functions"):
            again = await opened(store, files_in(tmp_path), clock)
        assert "1 files" in caplog.text
        folders = [entry.name for entry in files.folder.iterdir()]
        assert len(folders) == 4
        assert f"unnamed-{left.file_id}" in folders
        again.close()

    run(story)


def test_without_workers_the_reason_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        functions = await opened(MemoryMetadataStore(clock), files_in(tmp_path), clock)
        functions.reason = "the worker has no room"
        with pytest.raises(NoWorkersError, match="not done initializing") as refused:
            await functions.workers()
        assert refused.value.remedy == "the worker has no room"
        functions.close()

    run(story)
