"""What holds for every unit test: any order, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.endings import close_all
from support.order import SEED, is_about_sources

HERE: Final = Path(__file__).parent
DESCRIPTORS: Final = "/proc/self/fd"
_SAYS: Final = os.path.exists(DESCRIPTORS)


def open_descriptors() -> set[str]:
    """The numbers of this process's descriptors, that of the listing among them; none where the system does
    not say."""
    return set(os.listdir(DESCRIPTORS)) if _SAYS else set()


def places_of(descriptors: set[str]) -> dict[str, str]:
    """What descriptors are open for, by their numbers."""
    found = {}
    for name in descriptors:
        try:
            found[name] = os.readlink(f"{DESCRIPTORS}/{name}")
        except OSError:
            # That of a listing.
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that leaves a task behind when its loop ends, or a descriptor open.

    `asyncio.run` cancels what still runs, which hides a task that lost its parent. The mark `leaves` has the
    reason of a test that may.
    """
    left: list[str] = []
    cancel = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]  # private

    def noted(loop: asyncio.AbstractEventLoop) -> None:
        left.extend(repr(task.get_coro()) for task in asyncio.all_tasks(loop))
        cancel(loop)

    monkeypatch.setattr(asyncio.runners, "_cancel_all_tasks", noted)
    before = open_descriptors()
    yield
    close_all()
    if request.node.get_closest_marker("leaves"):
        return
    assert left == [], "tasks that did not end"
    if places_of(open_descriptors() - before):
        gc.collect()
        assert places_of(open_descriptors() - before) == {}, "left open"


def reads_sources(path: Path) -> bool:
    """Whether a file has rules over the sources, or over tools that read them."""
    return is_about_sources(path.relative_to(HERE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Unit tests run in an order of chance: files, and tests within a file. The files with rules over the
    sources come first, in an order of chance among themselves: then one worker runs them all, and the others
    need not parse the sources."""
    unit = [item for item in items if item.path.is_relative_to(HERE)]
    files = sorted({item.path for item in unit})
    chance = random.Random(config.stash[SEED])
    chance.shuffle(files)
    files.sort(key=reads_sources, reverse=True)
    of_file: dict[Path, list[pytest.Item]] = {path: [] for path in files}
    for item in unit:
        of_file[item.path].append(item)
    shuffled = []
    for path in files:
        chance.shuffle(of_file[path])
        shuffled += of_file[path]
    items[:] = [*shuffled, *(item for item in items if not item.path.is_relative_to(HERE))]
