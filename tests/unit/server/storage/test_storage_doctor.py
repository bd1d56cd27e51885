"""What the doctor finds in a damaged data folder, mends and gives up; the broker then goes past it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from magnetar.base.clock import ManualClock
from magnetar.base.errors import LostEntriesError, StartupError
from magnetar.base.ids import EARLIEST, Position
from magnetar.bookie.given_up import GivenUpFile
from magnetar.bookie.segment import decode_segment_header
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.cli.main import magnetar
from magnetar.ledger.embedded import EmbeddedLedgers
from magnetar.managedlog.holes import HolePolicy
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.logs import ManagedLogs
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.runtime.file_lock import FileLock
from magnetar.server.storage import storage_doctor
from support.storage import flip, segments, until

NAME = "public/default/persistent/hurt"


@asynccontextmanager
async def opened(root: Path, *, given_up: bool = False) -> AsyncIterator[ManagedLog]:
    """The log of a broker on this folder."""
    metadata = EmbeddedMetadataStore.open(
        root / "metadata" / "metadata.db", clock=ManualClock(), durable=False
    )
    store = await SegmentStore.open(
        root / "bookie", options=StoreOptions(segment_bytes=1 << 20), durability=Durability.VOLATILE
    )
    tasks = set()

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        tasks.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(tasks.discard)

    logs = ManagedLogs(
        store=metadata,
        ledgers=EmbeddedLedgers(store, metadata, ManualClock()),
        clock=ManualClock(),
        spawn=spawn,
        holes=HolePolicy(given_up=GivenUpFile(root / "bookie").ranges if given_up else dict),
    )
    try:
        yield await logs.open(NAME)
    finally:
        await logs.close()
        await asyncio.gather(*tasks)
        await store.close()
        await metadata.close()


async def wrote(root: Path) -> tuple[int, list[Any]]:
    """Ten entries in a log that is closed; its ledger, and where its blocks lie."""
    async with opened(root) as log:
        await log.open_cursor("s", initial="earliest")
        for number in range(10):
            log.append([b"entry %d" % number * 20], None)
            await until(lambda: not log.pending_bytes)
        ledger_id = log.last_position.ledger_id
    store = await SegmentStore.open(root / "bookie", durability=Durability.VOLATILE)
    index = await store.reader.index_of(ledger_id)
    places = [index.place_of(entry) for entry in range(10)]
    await store.close()
    return ledger_id, places


def holding(root: Path, place: Any) -> Path:
    return next(path for path in segments(root / "bookie") if int(path.stem, 16) == place.segment_id)


def test_a_whole_folder_is_good(tmp_path: Path) -> None:
    asyncio.run(wrote(tmp_path))
    before = {path: path.read_bytes() for path in segments(tmp_path / "bookie")}
    report = storage_doctor.check(tmp_path)
    assert report.is_good
    assert report.blocks >= 1
    assert {path: path.read_bytes() for path in segments(tmp_path / "bookie")} == before


def test_damaged_headers_and_footers_are_repaired_and_nothing_is_lost(tmp_path: Path) -> None:
    _, places = asyncio.run(wrote(tmp_path))
    path = holding(tmp_path, places[0])
    whole = path.read_bytes()
    end = max(place.offset + place.size for place in places)
    for offset in (20, end + 3, len(whole) - 70, len(whole) - 2):
        flip(path, offset)
        found = storage_doctor.check(tmp_path)
        assert not found.lost
        assert all(finding.repairable for finding in found.findings)
        assert storage_doctor.mend(tmp_path).is_good
        assert path.read_bytes() == whole


def test_files_in_the_wrong_place_are_repaired(tmp_path: Path) -> None:
    _, places = asyncio.run(wrote(tmp_path))
    path = holding(tmp_path, places[0])
    whole = path.read_bytes()
    path.rename(path.with_name(f"{99:016x}.seg"))
    asyncio.run(wrote(tmp_path / "other"))
    foreign = segments(tmp_path / "other" / "bookie")[0].read_bytes()
    stranger_path = path.with_name(f"{77:016x}.seg")
    stranger_path.write_bytes(foreign)
    found = storage_doctor.check(tmp_path)
    assert len(found.repairable) == 2
    assert not found.lost
    after = storage_doctor.mend(tmp_path)
    assert after.is_good
    assert len(after.done) == 1
    assert path.read_bytes() == whole
    assert (tmp_path / "bookie" / "quarantine" / stranger_path.name).read_bytes() == foreign
    header = decode_segment_header(whole[:64])
    assert header is not None
    assert header.segment_id == int(path.stem, 16)


def test_lost_entries_are_listed_exactly_and_given_up_only_when_it_is_said(tmp_path: Path) -> None:
    ledger_id, places = asyncio.run(wrote(tmp_path))
    place = places[4]
    path = holding(tmp_path, place)
    flip(path, place.offset + place.size - 1)
    report = storage_doctor.check(tmp_path)
    (lost,) = report.lost
    assert (lost.topic, lost.ledger, lost.first, lost.last) == (
        NAME,
        ledger_id,
        place.first_entry,
        place.last_entry,
    )
    assert (lost.file, lost.offset, lost.bytes) == (str(path), place.offset, place.size)
    assert not lost.given_up
    assert not (tmp_path / "bookie" / "GIVEN-UP.json").exists()

    async def waits() -> None:
        async with opened(tmp_path, given_up=True) as log:
            with pytest.raises(LostEntriesError):
                await log.read(Position(ledger_id, place.first_entry), 1 << 20, 100)

    asyncio.run(waits())
    report = storage_doctor.give_up(tmp_path)
    assert any("gave up entries" in line for line in report.done)
    (lost,) = storage_doctor.check(tmp_path).lost
    assert lost.given_up

    async def goes_on() -> None:
        async with opened(tmp_path, given_up=True) as log:
            found: set[int] = set()
            position = EARLIEST
            while runs := await log.read(position, 1 << 20, 100):
                for run in runs:
                    found.update(range(run.first_entry, run.last_entry + 1))
                position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
            assert found == set(range(10)) - set(range(place.first_entry, place.last_entry + 1))

    asyncio.run(goes_on())
    # A second time there is nothing left to give up.
    assert storage_doctor.give_up(tmp_path).done == []


def test_a_running_broker_keeps_its_files_and_may_be_looked_at(tmp_path: Path) -> None:
    _, places = asyncio.run(wrote(tmp_path))
    flip(holding(tmp_path, places[2]), places[2].offset + places[2].size - 1)
    lock = FileLock(tmp_path / "LOCK", "the folder")
    report = storage_doctor.check(tmp_path)
    assert not report.topics_known
    assert report.lost
    with pytest.raises(StartupError, match="in use by process"):
        storage_doctor.mend(tmp_path)
    with pytest.raises(StartupError, match="in use by process"):
        storage_doctor.give_up(tmp_path)
    lock.release()


def test_the_command_shows_first_and_ends_with_a_code(tmp_path: Path) -> None:
    ledger_id, places = asyncio.run(wrote(tmp_path))

    def run(*arguments: str) -> tuple[int, str]:
        told = [*arguments, "--data", str(tmp_path)]
        result = CliRunner().invoke(magnetar, ["doctor", "storage", *told], standalone_mode=False)
        assert result.exception is None, result.exception
        return result.return_value or 0, result.output

    assert run("check")[0] == 0
    path = holding(tmp_path, places[4])
    flip(path, places[4].offset + places[4].size - 1)
    flip(path, 20)
    code, text = run("check")
    assert code == 7
    assert f"lost: ledger {ledger_id} of {NAME}" in text
    code, text = run("repair")
    assert code == 7
    assert "1 can be repaired; add --apply" in text
    code, text = run("repair", "--apply")
    assert code == 0
    assert "header written anew" in text
    code, text = run("salvage")
    assert code == 7
    assert "would be given up; add --apply" in text
    assert run("salvage", "--apply")[0] == 0
    code, text = run("check", "-o", "json")
    assert code == 7
    document = json.loads(text)
    assert [lost["given_up"] for lost in document["lost"]] == [True]


def test_a_bookies_folder_is_looked_at_and_mended_and_nothing_is_given_up(tmp_path: Path) -> None:
    ledger_id, places = asyncio.run(wrote(tmp_path))
    bookie = tmp_path / "bookie"
    report = storage_doctor.check(bookie)
    assert report.is_good
    assert report.of_bookie
    path = holding(tmp_path, places[4])
    flip(path, places[4].offset + places[4].size - 1)
    flip(path, 20)
    report = storage_doctor.check(bookie)
    (lost,) = report.lost
    assert (lost.ledger, lost.first, lost.last) == (ledger_id, places[4].first_entry, places[4].last_entry)
    assert report.repairable
    with pytest.raises(StartupError, match=r"others have copies .*accept-loss"):
        storage_doctor.give_up(bookie)
    report = storage_doctor.mend(bookie)
    assert report.done
    assert not report.repairable
    assert report.lost == [lost]
    # Ledgers of several bookies have gaps in each of them: what no damaged block held is not missing here.
    (tmp_path / "bookies").mkdir()
    (tmp_path / "bookies" / "instance").write_text("cluster")
    with pytest.raises(StartupError, match="name one of the folders in"):
        storage_doctor.check(tmp_path)


def test_what_is_given_up_is_noticed_while_a_broker_runs(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "metadata").mkdir(parents=True)
    run = CliRunner().invoke
    words = ["storage", "accept-loss", "7", "3", "--data", str(root)]
    with pytest.raises(StartupError, match="is not a data folder"):
        run(magnetar, [*words, "--yes"], standalone_mode=False, catch_exceptions=False)
    (root / "FORMAT").write_text("1")
    file = GivenUpFile(root)
    run(magnetar, [*words, "--dry-run"], standalone_mode=False, catch_exceptions=False)
    assert file.ranges() == {}
    result = run(magnetar, [*words, "--yes"], standalone_mode=False, catch_exceptions=False)
    assert "entries 3 to 3 of ledger 7 are given up" in result.output
    assert file.ranges() == {7: [(3, 3)]}
    run(magnetar, [*words, "--to", "5", "--yes"], standalone_mode=False, catch_exceptions=False)
    assert file.ranges() == {7: [(3, 3), (3, 5)]}
    (root / "GIVEN-UP.json").write_text("nonsense")
    assert file.ranges() == {7: [(3, 3), (3, 5)]}
