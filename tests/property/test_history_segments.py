"""A written segment gives its entries back, from any place, and the Parquet file holds the messages."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.history import segment_writer as writing
from magnetar.history.files import LocalFile
from magnetar.history.merging import alike, entries_of, merge_segments
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.history.verifying import verify_segment
from magnetar.tiered.parquet.frames import runs_parts
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, SegmentOrigin, StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb
from support.cases import cases
from support.history_entries import ledgers

ORIGIN = SegmentOrigin("persistent://public/default/history", 7)
DEFINITION = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null}]}'
WITH_SCHEMA = SegmentOrigin(ORIGIN.topic, 7, [StoredTopicSchema(bytes(8), pb.Schema.Type.Json, DEFINITION)])


@settings(max_examples=cases(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(ledgers(), st.data())
def test_segments_give_back_what_they_took(runs: list[EntryRun], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        path = str(Path(folder) / "segment")
        summary = write_segment(runs, data.draw(st.sampled_from([ORIGIN, WITH_SCHEMA])), path)
        source = opened.enter_context(closing(LocalFile(path)))
        assert summary.file_bytes == source.size
        assert verify_segment(SegmentReader(source), runs) == sum(len(run.entries) for run in runs)
        entry = data.draw(st.integers(summary.first_entry, summary.last_entry))
        reader, bytes_max = SegmentReader(source), data.draw(st.integers(0, 2000))
        read = reader.entries(7, entry, bytes_max)
        assert read[0].first_entry == entry
        assert b"".join(reader.frame_parts(7, entry, bytes_max)) == b"".join(runs_parts(read))
        table = pq.read_table(path)
    table.validate(full=True)
    assert table.num_rows == summary.rows
    assert pc.count(table["raw_entry"]).as_py() == summary.raw_entries
    assert table["entry_id"].to_pylist() == sorted(table["entry_id"].to_pylist())
    assert summary.messages == sum(run.message_count for run in runs)


@settings(max_examples=cases(16), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ledgers(), min_size=2, max_size=4), st.data())
def test_segments_of_several_ledgers_give_back_what_they_took(
    several: list[list[EntryRun]], data: st.DataObject
) -> None:
    numbered = [_renumbered(runs, ledger_id) for ledger_id, runs in enumerate(several, 7)]
    everything = [run for runs in numbered for run in runs]
    origin = replace(data.draw(st.sampled_from([ORIGIN, WITH_SCHEMA])), merged=True)
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        parts = []
        for ledger_id, runs in enumerate(numbered, 7):
            path = f"{folder}/{ledger_id}"
            write_segment(runs, replace(origin, ledger_id=ledger_id), path)
            parts.append(opened.enter_context(closing(LocalFile(path))))
        # Row groups that end within ledgers, and such that have several of them.
        patch.setattr(writing, "ROW_GROUP_ROWS", data.draw(st.sampled_from([1, 3, 1 << 17])))
        patch.setattr(writing, "VECTOR_BYTES", data.draw(st.sampled_from([64, 1 << 20])))
        assert alike(parts) == [len(parts)]
        summary = merge_segments(parts, origin, f"{folder}/merged")
        merged = opened.enter_context(closing(LocalFile(f"{folder}/merged")))
        count = sum(len(run.entries) for run in everything)
        assert verify_segment(SegmentReader(merged), entries_of(parts)) == count
        assert verify_segment(SegmentReader(merged), everything) == count
        again = merge_segments([merged], origin, f"{folder}/again")
        assert (again.rows, again.messages, again.base_index) == (
            summary.rows,
            summary.messages,
            summary.base_index,
        )
        reader = SegmentReader(merged)
        for run in data.draw(st.permutations(everything)):
            (read, *_) = reader.entries(run.ledger_id, run.first_entry, data.draw(st.integers(0, 2000)))
            assert (read.ledger_id, read.first_entry) == (run.ledger_id, run.first_entry)
            assert reader.position_at(run.ledger_id, run.broker_time_ms) is not None
        with pytest.raises(DamagedSegmentError):
            verify_segment(SegmentReader(merged), everything[:-1])
        table = pq.read_table(f"{folder}/merged")
    table.validate(full=True)
    places = list(zip(table["ledger_id"].to_pylist(), table["entry_id"].to_pylist(), strict=True))
    assert places == sorted(places)


def _renumbered(runs: list[EntryRun], ledger_id: int) -> list[EntryRun]:
    """The same entries from entry 0 of a ledger on."""
    first = runs[0].first_entry
    return [
        EntryRun(
            ledger_id, run.first_entry - first, run.entries, run.counts, run.base_index, run.broker_time_ms
        )
        for run in runs
    ]


def _with_gaps(runs: list[EntryRun], data: st.DataObject) -> list[EntryRun]:
    """The same with some entries left out, as the log gives them: in runs of their own."""
    found: list[EntryRun] = []
    for run in runs:
        for at in range(len(run.entries)):
            part = run.slice(at, at + 1)
            if data.draw(st.booleans()):
                part = EntryRun(
                    run.ledger_id, part.first_entry, [LEFT_OUT], None, part.base_index, run.broker_time_ms
                )
            found.append(part)
    return found


def _places(runs: list[EntryRun]) -> list[tuple[int, int, int, bytes, int]]:
    """What a reader can tell of entries, of those that are left out only that they are."""
    return [
        (run.ledger_id, run.first_entry + at, 0, LEFT_OUT, 0)
        if entry == LEFT_OUT
        else (run.ledger_id, run.first_entry + at, run.slice(at, at + 1).base_index, b"", run.count_of(at))
        for run in runs
        for at, entry in enumerate(run.entries)
    ]


@settings(max_examples=cases(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ledgers(), min_size=1, max_size=3), st.data())
def test_segments_that_leave_entries_out_give_back_all_others_at_their_places(
    several: list[list[EntryRun]], data: st.DataObject
) -> None:
    numbered = [_with_gaps(_renumbered(runs, number), data) for number, runs in enumerate(several, 7)]
    everything = [run for runs in numbered for run in runs]
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(writing, "ROW_GROUP_ROWS", data.draw(st.sampled_from([1, 3, 1 << 17])))
        patch.setattr(writing, "VECTOR_BYTES", data.draw(st.sampled_from([64, 1 << 20])))
        parts = []
        for number, runs in enumerate(numbered, 7):
            write_segment(runs, replace(ORIGIN, ledger_id=number), f"{folder}/{number}")
            parts.append(opened.enter_context(closing(LocalFile(f"{folder}/{number}"))))
        summary = merge_segments(parts, replace(ORIGIN, merged=True), f"{folder}/merged")
        source = opened.enter_context(closing(LocalFile(f"{folder}/merged")))
        reader = SegmentReader(source)
        count = sum(len(run.entries) for run in everything)
        assert verify_segment(SegmentReader(source), entries_of(parts)) == count
        assert verify_segment(reader, everything) == count
        assert _places(list(entries_of([source]))) == _places(everything)
        for run in data.draw(st.permutations(everything)):
            bytes_max = data.draw(st.integers(0, 300))
            read = reader.entries(run.ledger_id, run.first_entry, bytes_max)
            assert (read[0].ledger_id, read[0].first_entry) == (run.ledger_id, run.first_entry)
            assert all(before.last_entry + 1 == after.first_entry for before, after in pairwise(read))
            frame = reader.frame_parts(run.ledger_id, run.first_entry, bytes_max)
            assert b"".join(frame) == b"".join(runs_parts(read))
            reader.ahead(run.ledger_id, run.first_entry)
            reader.position_at(run.ledger_id, run.broker_time_ms)
        if everything[0].entries != [LEFT_OUT]:
            wrong = [*_with_gap(everything[0]), *everything[1:]]
            with pytest.raises(DamagedSegmentError):
                verify_segment(SegmentReader(source), wrong)
        table = pq.read_table(f"{folder}/merged")
    kept = {(run.ledger_id, run.first_entry) for run in everything if run.entries != [LEFT_OUT]}
    there = set(zip(table["ledger_id"].to_pylist(), table["entry_id"].to_pylist(), strict=True))
    assert there == kept
    assert summary.messages == sum(run.message_count for run in everything if run.entries != [LEFT_OUT])


def _with_gap(run: EntryRun) -> list[EntryRun]:
    return [EntryRun(run.ledger_id, run.first_entry, [LEFT_OUT], None, run.base_index, run.broker_time_ms)]
