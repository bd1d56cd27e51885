"""A data folder that is moved, with its history in it: also one of a version that noted no places."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from support.history_topics import KEEP_EVERYTHING, PATH, HistoryTopic, objects_of
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.one_process("history")


@pytest.mark.process
def test_history_moves_with_the_data_folder(tmp_path: Path) -> None:
    first = StandaloneProcess(tmp_path / "first", environment=KEEP_EVERYTHING)
    with first:
        history = HistoryTopic(first)
        history.fill_ledger(40)
        history.offload()
        history.delete_local()
        before = history.read()
    moved = first.data_dir
    for number in range(2):
        place = tmp_path / f"moved-{number}"
        place.mkdir()
        shutil.move(moved, place / "data")
        moved = place / "data"
        with StandaloneProcess(place, environment=KEEP_EVERYTHING) as process:
            history = HistoryTopic(process)
            assert history.read() == before
            (found,) = [ledger["offloadedTo"] for ledger in history.ledgers() if ledger["offloaded"]]
            assert found["url"] == (moved / "offloaded").as_uri()
            if number == 1:
                process.admin("DELETE", f"{PATH}?force=true")
                assert objects_of(moved / "offloaded") == set()


@pytest.mark.process
def test_messages_on_bookies_beside_the_broker_move_with_the_data_folder(tmp_path: Path) -> None:
    """The bookies' cookies named their folders as they were at the first start."""
    options = ("--bookies", "2")
    with StandaloneProcess(tmp_path / "first", environment=KEEP_EVERYTHING, options=options) as first:
        history = HistoryTopic(first)
        history.fill_ledger(40)
        before = history.read()
    assert len(before) == 40
    shutil.move(first.data_dir, tmp_path / "moved")
    moved = tmp_path / "moved"
    with StandaloneProcess(
        tmp_path / "second", environment=KEEP_EVERYTHING, options=options, data_dir=moved
    ) as second:
        history = HistoryTopic(second)
        assert history.read() == before
        history.fill_ledger(40)
        assert len(history.read()) == 80


@pytest.mark.process
def test_a_copy_of_the_folder_leaves_the_original_alone(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "first", environment=KEEP_EVERYTHING) as first:
        history = HistoryTopic(first)
        history.fill_ledger(40)
        history.offload()
        history.delete_local()
        before = history.read()
    (tmp_path / "copy").mkdir()
    shutil.copytree(first.data_dir, tmp_path / "copy" / "data")
    with StandaloneProcess(tmp_path / "copy", environment=KEEP_EVERYTHING) as copy:
        assert HistoryTopic(copy).read() == before
        copy.admin("DELETE", f"{PATH}?force=true")
    assert objects_of(tmp_path / "copy" / "data" / "offloaded") == set()
    with first:
        assert history.read() == before
