"""Commits of tables: columns that change, crashes at each step, owners that race."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from magnetar.base.names import TopicName
from magnetar.lake import upkeep
from magnetar.lake.catalog import Lake
from magnetar.lake.lake_values import LakeConflictError, LakeError, LogFiles
from magnetar.lake.syncing import sync
from support.lake_tables import TIME_MS, TOPIC, LakeFolder, record

pytestmark = pytest.mark.one_process("own")

TOPIC_NAME = TopicName.parse(TOPIC)
DAY_MS = 86_400_000

CRASH = """
import json, os, sys
from magnetar.lake.catalog import Lake
from magnetar.lake.syncing import sync
from magnetar.lake.lake_values import CatalogSettings, LogFiles

settings, wanted, where = map(json.loads, sys.argv[1:])

def step(name):
    if name == where:
        os._exit(9)

sync(Lake(CatalogSettings.from_json(settings)), LogFiles.from_json(wanted), step)
"""


def crash(folder: LakeFolder, wanted: LogFiles, where: str) -> None:
    """A process that is gone at this step, as by kill -9."""
    arguments = [json.dumps(each) for each in (folder.settings.to_json(), wanted.to_json(), where)]
    done = subprocess.run([sys.executable, "-c", CRASH, *arguments], timeout=60, check=False)
    assert done.returncode == 9


@pytest.fixture
def folder(tmp_path: Path) -> LakeFolder:
    return LakeFolder(tmp_path)


def problems(folder: LakeFolder, *logs: LogFiles) -> list[str]:
    found = upkeep.verify(folder.lake, TOPIC_NAME, logs, lambda done, of: None)
    return [problem["kind"] for problem in found["problems"]]


def test_columns_follow_the_schema(folder: LakeFolder) -> None:
    """A column comes, one goes, one grows, one changes its type under the same name."""
    first = record(("a", "int"), ("gone", "string"), ("x", "string"))
    second = record(
        ("a", "long"),
        ("new", ["null", "double"]),
        ("x", "int"),
        ("tags", {"type": "array", "items": "string"}),
    )
    one = folder.segment(1, [{"a": 7, "gone": "g", "x": "old"}], first)
    two = folder.segment(2, [{"a": 1 << 40, "new": 0.5, "x": 3, "tags": ["t"]}], first, second)
    sync(folder.lake, folder.wanted(1, one))
    before = folder.lake.table(TOPIC_NAME)
    assert before is not None
    sync(folder.lake, folder.wanted(2, one, two))
    rows = folder.rows("value", "partition")
    assert rows == [
        ({"a": 7, "new": None, "x": None, "tags": None, "gone": "g", "x_1002": "old"}, -1),
        ({"a": 1 << 40, "new": 0.5, "x": 3, "tags": ["t"], "gone": None, "x_1002": None}, -1),
    ]
    after = folder.lake.table(TOPIC_NAME)
    assert after is not None
    for name in ("a", "gone"):
        ids = [table.schema().find_field(f"value.{name}").field_id for table in (before, after)]
        assert ids[0] == ids[1]
    # Bounds written as int are read as those of a long.
    assert after.scan(row_filter="value.a > 100").to_arrow().num_rows == 1
    assert after.scan(row_filter="value.a < 100").to_arrow().num_rows == 1
    # An earlier snapshot is read with the columns that it had.
    earlier = after.scan(snapshot_id=after.metadata.snapshots[0].snapshot_id).to_arrow()
    assert earlier["value"].to_pylist() == [{"a": 7, "gone": "g", "x": "old"}]


def test_a_topic_that_gets_a_schema_later(folder: LakeFolder) -> None:
    plain = folder.segment(1, [b"bytes"])
    sync(folder.lake, folder.wanted(1, plain))
    sync(folder.lake, folder.wanted(2, plain, folder.segment(2, [{"a": 1}], record(("a", "int")))))
    assert folder.rows("payload", "value") == [(b"bytes", None), (b"\x02", {"a": 1})]


def test_an_id_that_means_something_else_is_refused(folder: LakeFolder) -> None:
    """As after all schemas of a topic were destroyed: the file stays out, and the error says what differs."""
    sync(folder.lake, folder.wanted(1, one := folder.segment(1, [{"a": 1}], record(("a", "int")))))
    with pytest.raises(LakeConflictError, match=r"value\.b in a new file and was value\.a"):
        sync(folder.lake, folder.wanted(2, one, folder.segment(2, [{"b": "x"}], record(("b", "string")))))
    assert folder.ledgers() == [1]


def test_partitions_share_a_table(folder: LakeFolder) -> None:
    sync(folder.lake, folder.wanted(1, folder.segment(1, [b"a"]), partition=0))
    sync(folder.lake, folder.wanted(1, folder.segment(2, [b"b"]), partition=1))
    assert folder.rows("partition", "payload") == [(0, b"a"), (1, b"b")]
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    assert [task.file.record_count for task in table.scan(row_filter="partition = 1").plan_files()] == [1]
    # What one list says of its files says nothing of the other one's.
    sync(folder.lake, folder.wanted(2, partition=0))
    assert folder.rows("partition", "payload") == [(1, b"b")]


@pytest.mark.parametrize(
    ("where", "existing"),
    [("read", False), ("committed", False), ("planned", True), ("read", True), ("committed", True)],
)
def test_crashes_while_a_table_grows(folder: LakeFolder, where: str, *, existing: bool) -> None:
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    if existing:
        sync(folder.lake, folder.wanted(1, one))
    wanted = folder.wanted(2, one, two)
    crash(folder, wanted, where)
    done = sync(folder.lake, wanted)
    assert done.outcome == ("unchanged" if where == "committed" else "changed")
    assert folder.ledgers() == [1, 2]
    assert problems(folder, wanted) == []


@pytest.mark.parametrize("where", ["planned", "read", "committed"])
def test_crashes_while_files_are_retired(folder: LakeFolder, where: str) -> None:
    """Until the commit everything is there; after it nothing names what is about to be deleted."""
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    sync(folder.lake, folder.wanted(1, one, two))
    retired = folder.wanted(2, two, retired=1)
    crash(folder, retired, where)
    if where != "committed":
        assert folder.ledgers() == [1, 2]
    # The owner deletes objects only after this returned.
    sync(folder.lake, retired)
    Path(one.path.removeprefix("file://")).unlink()
    assert folder.ledgers() == [2]
    assert problems(folder, retired) == []
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    for snapshot in table.metadata.snapshots:
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 1


def test_an_old_owner_brings_nothing_back(folder: LakeFolder) -> None:
    """A reads its list, B retires a file and deletes the object, then A writes."""
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    sync(folder.lake, folder.wanted(1, one))
    other = Lake(folder.settings)

    def meanwhile(step: str) -> None:
        if step == "read":
            sync(other, folder.wanted(3, retired=1))

    assert sync(folder.lake, folder.wanted(2, one, two), meanwhile).outcome == "behind"
    assert folder.ledgers() == []
    assert sync(folder.lake, folder.wanted(2, one, two)).outcome == "behind"


def test_retiring_what_is_not_there_yet(folder: LakeFolder) -> None:
    """A is about to add what B has retired before it ever was in the table."""
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    sync(folder.lake, folder.wanted(1, one))
    other = Lake(folder.settings)

    def meanwhile(step: str) -> None:
        if step == "read":
            sync(other, folder.wanted(3, one, retired=1))

    assert sync(folder.lake, folder.wanted(2, one, two), meanwhile).outcome == "behind"
    assert folder.ledgers() == [1]


def test_two_make_the_same_table(folder: LakeFolder) -> None:
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    other = Lake(folder.settings)

    def meanwhile(step: str) -> None:
        if step == "read" and other.table(TOPIC_NAME) is None:
            sync(other, folder.wanted(1, two, partition=1))

    assert sync(folder.lake, folder.wanted(1, one, partition=0), meanwhile).outcome == "changed"
    assert folder.rows("partition", "ledger_id") == [(0, 1), (1, 2)]


def test_partitions_commit_at_the_same_time(folder: LakeFolder) -> None:
    files = [folder.segment(number, [b"%d" % number]) for number in range(1, 7)]
    sync(folder.lake, folder.wanted(1, files[0], partition=0))

    def one(number: int) -> None:
        lake = Lake(folder.settings)
        for _ in range(50):
            try:
                sync(lake, folder.wanted(1, files[number], partition=number))
            except LakeError:
                continue
            return

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(1, 6)))
    assert folder.rows("partition", "ledger_id") == [(number, number + 1) for number in range(6)]


def test_a_file_that_is_not_what_the_list_says(folder: LakeFolder) -> None:
    one = folder.segment(1, [b"1"])
    path = Path(one.path.removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(LakeError, match="bytes"):
        sync(folder.lake, folder.wanted(1, one))
    path.unlink()
    done = sync(folder.lake, folder.wanted(1, one))
    assert (done.outcome, done.gone) == ("unchanged", (one.path,))
    assert folder.lake.table(TOPIC_NAME) is None


def test_a_lost_file_keeps_no_other_from_its_table(folder: LakeFolder) -> None:
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    Path(one.path.removeprefix("file://")).unlink()
    done = sync(folder.lake, folder.wanted(1, one, two))
    assert (done.outcome, done.gone) == ("changed", (one.path,))
    assert folder.ledgers() == [2]
    # The same list is looked at again, and says so again.
    assert sync(folder.lake, folder.wanted(1, one, two)).gone == (one.path,)


def test_small_files_stay_when_the_one_that_replaces_them_is_lost(folder: LakeFolder) -> None:
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    sync(folder.lake, folder.wanted(1, one))
    Path(two.path.removeprefix("file://")).unlink()
    wanted = replace(folder.wanted(2, two), replaced=frozenset({one.path}))
    assert sync(folder.lake, wanted).gone == (two.path,)
    assert folder.ledgers() == [1]


def test_a_file_that_retention_deletes_meanwhile_is_not_lost(folder: LakeFolder) -> None:
    """A reads its list and plans, B retires the file and deletes its object, then A looks for it."""
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    sync(folder.lake, folder.wanted(1, two))
    other = Lake(folder.settings)
    real = Lake.table
    calls = 0

    class Between(Lake):
        def table(self, topic: TopicName) -> Any:
            nonlocal calls
            found = real(self, topic)
            calls += 1
            if calls == 1:
                sync(other, folder.wanted(3, two, retired=1))
                Path(one.path.removeprefix("file://")).unlink()
            return found

    assert sync(Between(folder.settings), folder.wanted(2, one, two)).outcome == "behind"


def test_tables_of_earlier_versions_are_guarded(folder: LakeFolder) -> None:
    """Expiry by others must delete no data files: also of tables that were made before this was set."""
    one = folder.segment(1, [b"1"])
    sync(folder.lake, folder.wanted(1, one))
    name = ("public__default", "my_x002e_topic")
    table = folder.lake.catalog.load_table(name)
    assert table.properties["gc.enabled"] == "false"
    with table.transaction() as transaction:
        transaction.remove_properties("gc.enabled")
    assert "gc.enabled" not in folder.lake.catalog.load_table(name).properties
    assert sync(folder.lake, folder.wanted(1, one)).outcome == "changed"
    assert folder.lake.catalog.load_table(name).properties["gc.enabled"] == "false"
    assert sync(folder.lake, folder.wanted(1, one)).outcome == "unchanged"


def test_what_others_take_out_is_put_back_and_said(folder: LakeFolder) -> None:
    """As `rewrite_data_files` does: the same rows in a file of its own."""
    one, two = (folder.segment(number, [b"%d" % number]) for number in (1, 2))
    sync(folder.lake, folder.wanted(1, one, two))
    name = ("public__default", "my_x002e_topic")
    table = folder.lake.catalog.load_table(name)
    table.overwrite(table.scan().to_arrow(), snapshot_properties={"app-id": "nightly"})
    done = sync(folder.lake, folder.wanted(1, one, two))
    assert (done.added, done.restored) == (2, 2)
    assert all("nightly" in text for text in done.strangers)
    assert done.strangers
    assert problems(folder, folder.wanted(1, one, two)) == []
    assert sync(folder.lake, folder.wanted(1, one, two)).strangers == ()


def test_the_check_finds_what_is_wrong(folder: LakeFolder) -> None:
    files = [folder.segment(number, [b"%d" % number]) for number in range(1, 5)]
    sync(folder.lake, folder.wanted(1, *files[:3]))
    Path(files[0].path.removeprefix("file://")).unlink()
    damaged = Path(files[1].path.removeprefix("file://"))
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    assert sorted(problems(folder, folder.wanted(1, files[0], files[1], files[3]))) == [
        "missing",
        "not-in-list",
        "not-in-table",
        "unreadable",
    ]


def test_upkeep_expires_and_sweeps(folder: LakeFolder) -> None:
    files = [folder.segment(number, [b"%d" % number]) for number in range(1, 6)]
    for version in range(1, 6):
        sync(folder.lake, folder.wanted(version, *files[:version]))
    crash(folder, folder.wanted(6, *files[:4]), "read")
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    now_ms = table.metadata.last_updated_ms + DAY_MS
    plan = upkeep.maintain(folder.lake, TOPIC_NAME, now_ms=now_ms, keep_ms=0, keep_min=2, dry_run=True)
    assert plan is not None
    assert (plan["expired_snapshots"], plan["snapshots"], plan["small_files"]) == (3, 2, 5)
    unchanged = folder.lake.table(TOPIC_NAME)
    assert unchanged is not None
    assert len(unchanged.metadata.snapshots) == 5
    done = upkeep.maintain(folder.lake, TOPIC_NAME, now_ms=now_ms, keep_ms=0, keep_min=2, dry_run=False)
    assert done is not None
    assert done["deleted_metadata_files"] == plan["deleted_metadata_files"] > 0
    again = upkeep.maintain(folder.lake, TOPIC_NAME, now_ms=now_ms, keep_ms=0, keep_min=2, dry_run=False)
    assert again is not None
    assert again["deleted_metadata_files"] == again["expired_snapshots"] == 0
    assert folder.ledgers() == [1, 2, 3, 4, 5]
    assert problems(folder, folder.wanted(5, *files)) == []


def test_young_metadata_stays(folder: LakeFolder) -> None:
    """It may belong to a commit that is under way."""
    sync(folder.lake, folder.wanted(1, folder.segment(1, [b"1"])))
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    stray = Path(table.location().removeprefix("file://")) / "metadata" / "stray-m0.avro"
    stray.write_bytes(b"")
    now_ms = int(stray.stat().st_mtime * 1000)
    kept = upkeep.maintain(folder.lake, TOPIC_NAME, now_ms=now_ms, keep_ms=0, keep_min=1, dry_run=False)
    assert kept is not None
    assert kept["deleted_metadata_files"] == 0
    assert stray.exists()


def test_dropping(folder: LakeFolder) -> None:
    sync(folder.lake, folder.wanted(1, one := folder.segment(1, [b"1"])))
    status = upkeep.status(folder.lake, TOPIC_NAME)
    assert status is not None
    sync(folder.lake, folder.wanted(2))
    assert not upkeep.drop(folder.lake, TOPIC_NAME, status.versions), "it has changed since"
    status = upkeep.status(folder.lake, TOPIC_NAME)
    assert status is not None
    assert upkeep.drop(folder.lake, TOPIC_NAME, status.versions)
    assert folder.lake.table(TOPIC_NAME) is None
    assert [path.suffix for path in folder.store.rglob("*") if path.is_file()] == [".parquet"]
    assert sync(folder.lake, folder.wanted(3, one)).outcome == "changed"


def test_a_table_of_somebody_else_is_left_alone(folder: LakeFolder) -> None:
    from pyiceberg.schema import Schema

    folder.lake.catalog.create_namespace("public__default")
    folder.lake.catalog.create_table(("public__default", "my_x002e_topic"), Schema())
    with pytest.raises(LakeConflictError, match="another program"):
        sync(folder.lake, folder.wanted(1, folder.segment(1, [b"1"])))


def test_many_offloads_make_few_manifests(folder: LakeFolder) -> None:
    files = [folder.segment(number, [b"%d" % number]) for number in range(1, 46)]
    for version in range(1, 46):
        sync(folder.lake, folder.wanted(version, *files[:version]))
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 20
    assert len(folder.ledgers()) == 45
    assert TIME_MS in {int(when.timestamp() * 1000) for (when,) in folder.rows("broker_time")}


def test_times_never_go_back_after_a_clock_was_set_back(
    folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers in Java refuse a table whose snapshots or last update go back by more than a minute."""
    now_ms = int(time.time() * 1000)
    one, two, three = (folder.segment(number, [b"%d" % number]) for number in (1, 2, 3))
    with monkeypatch.context() as ahead:
        ahead.setattr("pyiceberg.table.snapshots.time.time", lambda: (now_ms + DAY_MS) / 1000)
        sync(folder.lake, folder.wanted(1, one))
        ahead.setattr("pyiceberg.table.snapshots.time.time", lambda: (now_ms + DAY_MS + 10) / 1000)
        sync(folder.lake, folder.wanted(2, one, two))
    before = folder.lake.table(TOPIC_NAME)
    assert before is not None
    assert before.metadata.last_updated_ms > now_ms + DAY_MS
    sync(folder.lake, folder.wanted(3, one, two, three))
    # Properties that another program took away, and that come back with nothing else.
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    with table.transaction() as transaction:
        transaction.remove_properties("gc.enabled")
    sync(folder.lake, folder.wanted(3, one, two, three))
    assert folder.lake.table(TOPIC_NAME).properties["gc.enabled"] == "false"  # type: ignore[union-attr]
    # The clock is behind: nothing is expired, which would write the clock's time as that of the last update.
    found = upkeep.maintain(folder.lake, TOPIC_NAME, now_ms=now_ms, keep_ms=0, keep_min=1, dry_run=False)
    assert found is not None
    assert found["expired_snapshots"] == 0
    sync(folder.lake, folder.wanted(4, one, two, three))
    table = folder.lake.table(TOPIC_NAME)
    assert table is not None
    times = [entry.timestamp_ms for entry in table.metadata.snapshot_log]
    assert times == sorted(times)
    assert table.metadata.last_updated_ms >= times[-1]
    assert folder.ledgers() == [1, 2, 3]
    later_ms = table.metadata.last_updated_ms + DAY_MS
    found = upkeep.maintain(folder.lake, TOPIC_NAME, now_ms=later_ms, keep_ms=0, keep_min=1, dry_run=False)
    assert found is not None
    assert found["expired_snapshots"] == len(times) - 1
