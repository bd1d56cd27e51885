"""Segments: what lies in the file, how few reads answer a question, what is said of damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from magnetar.base.entries import EntryRun
from magnetar.client.compression import compress
from magnetar.history import end
from magnetar.history import segment_writer as writing
from magnetar.history.columns import COLUMNS
from magnetar.history.files import LocalFile
from magnetar.history.key_index import read_records
from magnetar.history.layout import KeyIndexPlace
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import SegmentWriter, write_segment
from magnetar.history.verifying import verify_segment
from magnetar.tiered.footers import read_footer
from magnetar.tiered.parquet.parquet_history import (
    DamagedRowsError,
    DamagedSegmentError,
    Footer,
    HistoryError,
    SegmentOrigin,
    SegmentSummary,
    StoredTopicSchema,
)
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry
from support.endings import closed_at_end

TOPIC = "persistent://public/default/orders"
ORIGIN = SegmentOrigin(TOPIC, 5)
TIME_MS = 1_700_000_000_000


class CountedFile:
    """A local file that counts ranged reads."""

    def __init__(self, path: Path) -> None:
        self._file = closed_at_end(LocalFile(str(path)))
        self.name = self._file.name
        self.size = self._file.size
        self.reads: list[tuple[int, int]] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self._file.read_at(offset, length)

    def taken(self) -> int:
        """Reads since the last call."""
        count, self.reads = len(self.reads), []
        return count


def message(number: int, payload: bytes, **fields: object) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=TIME_MS + number)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return build_entry(metadata, payload)


def batch(number: int, payloads: list[bytes]) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=number,
        publish_time=TIME_MS + number,
        num_messages_in_batch=len(payloads),
        highest_sequence_id=number + len(payloads) - 1,
    )
    singles = [
        (pb.SingleMessageMetadata(sequence_id=number + at, partition_key=f"k{at}"), payload)
        for at, payload in enumerate(payloads)
    ]
    return build_entry(metadata, build_batch(singles))


def run_of(entries: list[bytes], first: int = 0, counts: list[int] | None = None) -> EntryRun:
    return EntryRun(5, first, entries, counts, first, TIME_MS + first)


@pytest.fixture(scope="module")
def file_of_many_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("segments") / "segment"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "ROW_GROUP_ROWS", 1000)
        write_many_groups(path, patch)
    return path


@pytest.fixture
def many_groups(file_of_many_groups: Path) -> CountedFile:
    """10,000 messages in ten row groups, keys 0 to 99 each a hundred times, key `once` in entry 4321."""
    return CountedFile(file_of_many_groups)


def write_many_groups(path: Path, patch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(str(path), ORIGIN)
    for first in range(0, 10_000, 500):
        entries = [
            message(at, b"payload %d" % at, partition_key="once" if at == 4321 else str(at % 100))
            for at in range(first, first + 500)
        ]
        runs = [run_of(entries[at : at + 100], first + at) for at in range(0, 500, 100)]
        patch.setattr(writing, "VECTOR_BYTES", sum(map(len, entries)))
        writer.add(runs)
    summary = writer.finish()
    assert summary.row_groups == 10
    assert summary.keys == 101


def test_the_file_has_the_promised_columns(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    write_segment([run_of([message(1, b"x")])], ORIGIN, str(path))
    schema = pq.read_schema(path)
    ids = [int(schema.field(column.name).metadata[b"PARQUET:field_id"]) for column in COLUMNS]
    assert ids == [column.id for column in COLUMNS] == list(range(1, 35))
    assert schema.names == [column.name for column in COLUMNS]


def test_what_clients_write_is_rebuilt_from_columns(tmp_path: Path) -> None:
    """Nothing is stored twice of what the usual producers send."""
    path = tmp_path / "segment"
    java = message(3, b"c", partition_key="k", partition_key_b64_encoded=False, event_time=TIME_MS)
    runs = [
        run_of(
            [message(1, b"a"), batch(2, [b"b", b"bb", b"b" * 300]), java, message(4, b"", null_value=True)],
            counts=[1, 3, 1, 1],
        )
    ]
    write_segment(runs, ORIGIN, str(path))
    table = pq.read_table(path)
    for name in ("entry_metadata", "message_metadata", "raw_entry"):
        assert table[name].null_count == table.num_rows
    assert table["payload"].to_pylist() == [b"a", b"b", b"bb", b"b" * 300, b"c", b""]
    assert table["key"].to_pylist() == [None, b"k0", b"k1", b"k2", b"k", None]
    assert table["batch_index"].to_pylist() == [-1, 0, 1, 2, -1, -1]
    assert table["entry_index"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert table["sequence_id"].to_pylist() == [1, 2, 3, 4, 3, 4]
    assert table["is_null_value"].to_pylist() == [False] * 5 + [True]
    source = closed_at_end(LocalFile(str(path)))
    assert verify_segment(SegmentReader(source), runs) == 4


def test_what_cannot_be_opened_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    encrypted = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=TIME_MS, partition_key="k")
    encrypted.encryption_keys.add(key="k", value=b"secret")
    zeros = compress(pb.CompressionType.ZSTD, bytes(1 << 20))
    entries = [
        build_entry(encrypted, b"hidden"),
        message(1, zeros, compression=pb.CompressionType.ZSTD, uncompressed_size=1 << 30),
        message(2, zeros, compression=pb.CompressionType.ZSTD, uncompressed_size=1000),
        message(3, b"not LZ4", compression=pb.CompressionType.LZ4, uncompressed_size=1000),
        message(4, b"", num_messages_in_batch=0),
        message(5, b"cut off", num_messages_in_batch=3),
        b"",
        message(6, b"sound"),
    ]
    runs = [run_of(entries, counts=[1, 1, 1, 1, 1, 3, 1, 1])]
    summary = write_segment(runs, ORIGIN, str(path))
    assert summary.raw_entries == 7
    table = pq.read_table(path)
    assert table["raw_entry"].to_pylist() == [*entries[:-1], None]
    assert table["payload"].to_pylist() == [None] * 7 + [b"sound"]
    # What the broker may see of it is there.
    assert table["key"].to_pylist()[0] == b"k"
    assert table["batch_size"].to_pylist() == [1, 1, 1, 1, 1, 3, 1, 1]
    assert table["entry_index"].to_pylist() == [0, 1, 2, 3, 4, 5, 8, 9]
    source = closed_at_end(LocalFile(str(path)))
    assert verify_segment(SegmentReader(source), runs) == 8
    (run,) = SegmentReader(source).entries(5, 0, 1 << 20)
    assert run.entries == entries
    source.close()


def test_entries_that_grow_are_built_in_smaller_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compressed entries claim bounds how many are built together, down to one."""
    monkeypatch.setattr(writing, "_PLAIN_BYTES_MAX", 25_000)
    path = tmp_path / "segment"
    plain = [bytes([at]) * 10_000 for at in range(9)]
    entries = [
        message(at, compress(at % 5, part), compression=at % 5, uncompressed_size=len(part))
        for at, part in enumerate(plain)
    ]
    runs = [run_of(entries[:4]), run_of(entries[4:], 4)]
    assert write_segment(runs, ORIGIN, str(path)).raw_entries == 0
    assert pq.read_table(path)["payload"].to_pylist() == plain
    source = closed_at_end(LocalFile(str(path)))
    assert verify_segment(SegmentReader(source), runs) == 9
    source.close()


def test_summary_says_what_is_inside(tmp_path: Path) -> None:
    runs = [run_of([message(1, b"a", partition_key="b")], 7), run_of([message(9, b"", partition_key="a")], 8)]
    path = tmp_path / "segment"
    schemas = (StoredTopicSchema(bytes(8), pb.Schema.Type.Json, b"{}", {"a": "b"}),)
    summary = write_segment(runs, SegmentOrigin(TOPIC, 5, schemas), str(path))
    assert (summary.first_entry, summary.last_entry, summary.rows, summary.base_index) == (7, 8, 2, 7)
    assert (summary.publish_time_min_ms, summary.publish_time_max_ms) == (TIME_MS + 1, TIME_MS + 9)
    assert (summary.broker_time_min_ms, summary.broker_time_max_ms) == (TIME_MS + 7, TIME_MS + 8)
    assert (summary.keys, summary.key_min, summary.key_max) == (2, b"a", b"b")
    assert summary.raw_bytes == sum(run.size_bytes for run in runs)
    assert SegmentSummary.from_json(summary.to_json()) == summary
    reader = SegmentReader(closed_at_end(LocalFile(str(path))))
    assert reader.summary.last_entry == 8
    assert reader.schemas == list(schemas)


def test_a_row_group_is_one_read(many_groups: CountedFile) -> None:
    reader = SegmentReader(many_groups)
    assert reader.summary.last_entry == 9999
    assert many_groups.taken() == 1
    entry = 0
    groups = 0
    while entry < 10_000:
        (*_, last) = reader.entries(5, entry, 20_000)
        entry = last.last_entry + 1
        groups += many_groups.taken()
    assert groups == 10


def test_reading_ahead_takes_the_read_away_from_who_reads_on(many_groups: CountedFile) -> None:
    reader = SegmentReader(many_groups)
    reader.entries(5, 0, 1000)
    reader.ahead(5, 10)
    many_groups.taken()
    (*_, last) = reader.entries(5, 1000, 1 << 20)
    assert last.last_entry == 1999
    assert many_groups.taken() == 0
    reader.ahead(5, 2000)
    assert many_groups.taken() == 1
    reader.entries(5, 2000, 1000)
    assert many_groups.taken() == 0
    reader.ahead(5, 10_000)
    reader.entries(5, 9999, 1000)
    many_groups.taken()
    reader.ahead(5, 9999)
    assert many_groups.taken() == 0


def test_a_time_is_one_read(many_groups: CountedFile) -> None:
    reader = SegmentReader(many_groups)
    assert reader.position_at(5, TIME_MS + 4250) == 4300
    assert many_groups.taken() == 2
    assert reader.position_at(5, TIME_MS + 4300) == 4300
    assert reader.position_at(5, 0) == 0
    assert reader.position_at(5, TIME_MS + 9901) is None


def test_a_key_is_a_few_reads(many_groups: CountedFile) -> None:
    reader = SegmentReader(many_groups)
    assert reader.lookup(b"nowhere", 1) == []
    assert many_groups.taken() <= 3
    (found,) = reader.lookup(b"once", 5)
    assert (found.entry_id, found.payload, found.index) == (4321, b"payload 4321", 4321)
    assert many_groups.taken() <= 3
    newest = reader.lookup(b"42", 3)
    assert [each.entry_id for each in newest] == [9942, 9842, 9742]
    assert many_groups.taken() <= 3
    assert len(reader.lookup(b"42", 1000)) == 100


def test_a_damaged_key_index_denies_nothing(file_of_many_groups: Path, tmp_path: Path) -> None:
    """One flipped bit hid the last message of a key: an older one was given in its place."""
    data = file_of_many_groups.read_bytes()
    place = SegmentReader(CountedFile(file_of_many_groups))._key_index
    assert place is not None
    damaged = tmp_path / "damaged"
    noticed = 0
    for bit in range(8 * place.offset, 8 * (place.offset + place.length), 997):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(changed)
        reader = SegmentReader(CountedFile(damaged))
        assert [each.entry_id for each in reader.lookup(b"42", 3)] == [9942, 9842, 9742], bit
        assert [each.entry_id for each in reader.lookup(b"once", 5)] == [4321], bit
        assert reader.lookup(b"nowhere", 1) == [], bit
        assert reader.row_groups_with([b"42"]) == frozenset(range(10)), bit
        noticed += "key index" in reader.key_damage
    assert noticed > 5


def test_a_key_index_without_checksums_is_read(
    many_groups: CountedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of earlier releases have those, and say nothing of a version."""
    assert KeyIndexPlace.decode("7:10:3") == KeyIndexPlace(7, 10, 3, 1)
    reader = SegmentReader(many_groups)
    place = reader._key_index
    assert place is not None
    section = reader._read_key_index(place, 0, place.length)
    records = read_records(section)
    starts = np.frombuffer(section[16 : 16 + 8 * ((1 << place.bits) + 1)], "<u4")[::2]
    first = struct.pack("<4sIII", b"MGKI", 1, place.bits, len(records)) + starts.tobytes() + records.tobytes()
    old = KeyIndexPlace(0, len(first), place.bits)
    monkeypatch.setattr(reader, "_key_index", old)
    monkeypatch.setattr(reader, "_read_key_index", lambda _, offset, length: first[offset : offset + length])
    assert [each.entry_id for each in reader.lookup(b"42", 3)] == [9942, 9842, 9742]
    assert [each.entry_id for each in reader.lookup(b"once", 5)] == [4321]
    assert reader.lookup(b"nowhere", 1) == []
    assert len(reader.key_hashes()) == 101
    assert reader.key_damage == ""


def test_a_footer_beyond_the_tail_is_one_read_more(
    many_groups: CountedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end, "TAIL_BYTES", 100)
    reader = SegmentReader(many_groups)
    assert reader.summary.last_entry == 9999
    assert many_groups.taken() == 2
    assert reader.lookup(b"nowhere", 1) == []
    assert many_groups.taken() <= 2
    assert [each.entry_id for each in reader.lookup(b"once", 5)] == [4321]
    assert many_groups.taken() <= 4


def test_entries_must_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    with pytest.raises(HistoryError, match="follows entry 0"):
        write_segment([run_of([message(1, b"")]), run_of([message(1, b"")], 2)], ORIGIN, str(path))
    assert not path.exists()
    with pytest.raises(HistoryError, match="without entries"):
        write_segment([], ORIGIN, str(path))
    assert not path.exists()


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    runs = [run_of([message(at, b"payload" * 50) for at in range(100)])]
    write_segment(runs, ORIGIN, str(path))
    data = path.read_bytes()
    for broken in (b"", b"short", data[: len(data) // 2], data[:-1], b"x" * len(data)):
        path.write_bytes(broken)
        with pytest.raises(DamagedSegmentError, match="segment"):
            SegmentReader(closed_at_end(LocalFile(str(path)))).entries(5, 0, 1000)
    path.write_bytes(data[:2000].replace(b"\x00", b"\x01") + data[2000:])
    with pytest.raises(DamagedSegmentError, match="segment"):
        SegmentReader(closed_at_end(LocalFile(str(path)))).entries(5, 0, 1000)


def test_flipped_bytes_of_payloads_are_found(tmp_path: Path) -> None:
    """zstd stores what it cannot compress as it is, without a checksum of its own; pages have one."""
    path = tmp_path / "segment"
    noise = random.Random(1).randbytes(10_000)
    write_segment([run_of([message(1, noise)])], ORIGIN, str(path))
    data = bytearray(path.read_bytes())
    at = data.index(noise[5000:5100])
    data[at + 50] ^= 1
    path.write_bytes(data)
    source = closed_at_end(LocalFile(str(path)))
    with pytest.raises(DamagedSegmentError, match="segment"):
        SegmentReader(source).entries(5, 0, 1000)
    source.close()


class Bytes:
    """A segment in memory whose end is known, or not."""

    def __init__(self, data: bytes, footer: Footer | None) -> None:
        self.name = "segment"
        self.size = len(data)
        self.footer = footer
        self._data = data

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


def test_a_damaged_row_group_costs_its_entries(file_of_many_groups: Path) -> None:
    """One damaged byte in 512 MiB kept every reader of the ledger waiting, with no word of which entries."""
    data = bytearray(file_of_many_groups.read_bytes())
    group = pq.read_metadata(file_of_many_groups).row_group(3)
    columns = [group.column(number) for number in range(group.num_columns)]
    column = next(column for column in columns if column.path_in_schema == "payload")
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    source = Bytes(bytes(data), None)
    reader = SegmentReader(source)
    with pytest.raises(DamagedRowsError) as raised:
        reader.entries(5, 3100, 1 << 20)
    assert (raised.value.first_entry, raised.value.last_entry) == (3000, 3999)
    for entry in (0, 2999, 4000, 9999):
        assert reader.entries(5, entry, 1)[0].first_entry == entry


def test_one_flipped_bit_of_a_known_end_is_put_right(file_of_many_groups: Path, nightly: bool) -> None:
    """pyarrow ends the process over some of them, and believes others. At night more places."""
    places = 100 if nightly else 30
    data, footer = file_of_many_groups.read_bytes(), read_footer(file_of_many_groups)
    assert footer is not None
    (good,) = SegmentReader(Bytes(data, footer)).entries(5, 4321, 1)
    chance = random.Random(8)
    for bit in chance.sample(range(8 * (len(data) - footer.length - 8), 8 * len(data)), places):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        (run,) = SegmentReader(Bytes(bytes(damaged), footer)).entries(5, 4321, 1)
        assert (run.first_entry, run.entries, run.base_index) == (4321, good.entries, 4321)
    for _ in range(places):
        damaged = bytearray(data)
        at = len(data) - 8 - chance.randrange(8, footer.length)
        damaged[at : at + 8] = chance.randbytes(8)
        with pytest.raises(DamagedSegmentError, match="fails its checksum"):
            SegmentReader(Bytes(bytes(damaged), footer)).entries(5, 4321, 1)


def test_a_later_format_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment"
    write_segment([run_of([message(1, b"x")])], ORIGIN, str(path))
    monkeypatch.setattr(end, "FORMAT_VERSION", 0)
    with pytest.raises(HistoryError, match="newer release") as raised:
        SegmentReader(closed_at_end(LocalFile(str(path)))).entries(5, 0, 1)
    assert not isinstance(raised.value, DamagedSegmentError)


def test_what_differs_is_found(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    write_segment([run_of([message(1, b"a"), message(2, b"b")])], ORIGIN, str(path))
    reader = SegmentReader(closed_at_end(LocalFile(str(path))))
    for runs in (
        [run_of([message(1, b"a"), message(2, b"c")])],
        [run_of([message(1, b"a")])],
        [run_of([message(1, b"a"), message(2, b"b"), message(3, b"c")])],
        [run_of([message(1, b"a"), message(2, b"b")], counts=[1, 2])],
    ):
        with pytest.raises(DamagedSegmentError):
            verify_segment(reader, runs)
