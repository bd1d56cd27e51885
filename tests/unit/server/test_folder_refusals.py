"""A data folder in which something is not what it should be: the start ends with cause and place."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from magnetar.base.errors import MagnetarError
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.standalone import Standalone

FILES = (
    "bookie/BELONGS",
    "bookie/ROSTER",
    "bookie/FORMAT",
    "bookie/INSTANCEID",
    "bookie/LOCK",
    "metadata/metadata.db",
    "metadata/metadata.db.lock",
)


async def started(folder: Path) -> None:
    server = Standalone(StandaloneConfig(data_dir=folder, broker_port=0, http_port=0))
    try:
        await server.start()
    finally:
        await server.close()


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    asyncio.run(started(folder))
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(MagnetarError, match=str(folder)):
        asyncio.run(started(folder))


def test_a_file_in_the_place_of_the_segments_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    asyncio.run(started(folder))
    shutil.rmtree(folder / "bookie" / "segments")
    (folder / "bookie" / "segments").write_text("x")
    with pytest.raises(MagnetarError, match=str(folder)):
        asyncio.run(started(folder))
