"""Harnesses of what is stored: segment files, and history as Parquet."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from fuzzing.harness import Harness, described, require
from magnetar.admin.calls.errors import RequestError
from magnetar.admin.topics.messages import message_answer
from magnetar.base.clock import ManualClock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import ConsumerId, LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.bookie.blocks import (
    HEADER_BYTES,
    Block,
    BlockBody,
    body_is_good,
    decode_entries,
    decode_header,
    good_blocks,
)
from magnetar.bookie.entry_blocks import blocks_of
from magnetar.bookie.recovery import SegmentBytes, scan_segment
from magnetar.bookie.segment import DATA_OFFSET, decode_segment_header, decode_trailer
from magnetar.broker.compaction.survivors import Survivors, left_in_batch
from magnetar.broker.filters.expression import PROPERTY
from magnetar.broker.filters.judge import Judge
from magnetar.broker.filters.rules import FilterRules
from magnetar.client.compression import compress
from magnetar.history.opening import open_entries
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.history.vectors import read_vector
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, SegmentOrigin
from magnetar.websocket.deliveries import Opener
from magnetar.websocket.documents import delivered
from magnetar.websocket.errors import UndeliverableError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.messages import MessageEvent
from magnetar.wire.payload import EntryError, build_batch, build_entry, entry_layout

_SALT: Final = 0x1122334455667788


def _block(data: bytes) -> object:
    """A block whose sums are right and whose fields are chance: what a faulty writer might leave."""
    head = data[:24].ljust(24, b"\0")
    block = Block(
        kind=head[0] % 5,
        ledger_id=LedgerId(int.from_bytes(head[1:9], "little", signed=True)),
        first_entry=int.from_bytes(head[9:17], "little", signed=True),
        entry_count=int.from_bytes(head[17:20], "little"),
        base_index=0,
        broker_time_ms=0,
        body=BlockBody([data[24:]], flags=head[20] % 4),
    )
    written = block.header(_SALT, 0, 0, 0, 0, LedgerId(0), 0) + data[24:]
    header = decode_header(written, 0, _SALT, 0)
    assert header is not None
    good = body_is_good(header, written[HEADER_BYTES:])
    found, taken = good_blocks(written, _SALT, 0, len(written))
    require(0 <= taken <= len(written), "more than there is")
    require(bool(found) == good or header.kind != 0, "the two ways to check a block differ")
    if not good or header.kind:
        return good
    run = decode_entries(header, written[HEADER_BYTES:])
    require(sum(map(len, run.entries)) <= len(data), "entries larger than their block")
    return described(run.entries)


def _segment(data: bytes) -> object:
    """The log of a segment, behind its header."""
    image = bytes(DATA_OFFSET) + data
    decode_segment_header(data)
    decode_trailer(data[-64:], None, len(data))
    scan = scan_segment(
        1,
        _SALT,
        SegmentBytes(
            len(image),
            lambda offset, length: image[offset : offset + length],
            lambda offset: offset if image[offset:].strip(b"\0") else None,
        ),
    )
    require(0 <= scan.end <= len(image), f"the log ends at {scan.end} of {len(image)}")
    return scan.end, scan.torn_bytes, len(scan.found.damages), sorted(scan.found.ledgers)


def _segment_seeds() -> list[bytes]:
    log = b""
    for first in (0, 3, 6):
        (block,) = blocks_of(LedgerId(4), first, [b"one", b"two" * 30, b""], [1, 2, 1], first, 5_000)
        offset = DATA_OFFSET + len(log)
        log += block.header(_SALT, offset, offset, 0, 0, LedgerId(0), 0) + b"".join(block.body.pieces)
    return [log, log[:-7], log + bytes(4_096), log[:300] + bytes(100) + log[300:]]


def _history(data: bytes) -> object:
    """Entries, cut where the bytes say: all are rows, opened or as they are."""
    entries: list[bytes] = []
    at = 0
    while at < len(data) and len(entries) < 8:
        size = int.from_bytes(data[at : at + 2], "big")
        entries.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    counts = [1 + (data[-1] + number) % 3 for number in range(len(entries))]
    opened = open_entries(read_vector([EntryRun(LedgerId(4), 0, entries or [b""], counts or [1], 0, 0)]))
    rows = int(opened.is_single.sum()) + (0 if opened.batches is None else len(opened.batches.entry))
    require(rows >= int(opened.is_single.sum()), "rows are missing")
    return opened.is_raw.tolist(), rows


def _readers(data: bytes) -> object:
    """Reads an entry with every reader of the broker: filters, compaction, the admin API, WebSockets."""
    position = Position(LedgerId(1), 2)
    count = 1 + (data[-1] % 3 if data else 0)
    rules = FilterRules(names=("expression",))
    properties = {PROPERTY: 'key == "k" or properties.colour == "red"'}
    verdicts = Judge(rules, "t", "s", lambda: properties, ManualClock()).verdicts([data], [count])
    require(len(verdicts) == 1, "no verdict")
    survivors = Survivors()
    survivors.see(position, data)
    kept = survivors.keep(position, data)
    bits = left_in_batch(data, count)
    try:
        shown = len(
            message_answer(TopicName.parse("t"), EntryRun(LedgerId(1), 2, [data], [count], 0, 0)).body
        )
    except (EntryError, RequestError) as error:
        shown = len(type(error).__name__)
    try:
        _, metadata_at, payload_at = entry_layout(data)
        event = MessageEvent(ConsumerId(1), position, data, metadata_at, payload_at)
        opened = Opener("FAIL", 1 << 20).open(event)
        sent = [delivered(message, "id") for message in opened.messages]
    except (EntryError, UndeliverableError):
        sent = []
    return verdicts[0].value, kept, bits, shown, sent


def _entries() -> list[bytes]:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.add(key="colour", value="red")
    metadata.partition_key = "key"
    single = build_entry(metadata, b"payload")
    plain = build_batch(
        [(pb.SingleMessageMetadata(partition_key="k"), b"a"), (pb.SingleMessageMetadata(), b"b")]
    )
    metadata.num_messages_in_batch = 2
    metadata.uncompressed_size = len(plain)
    batches = []
    for kind in (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY):
        metadata.compression = kind
        batches.append(build_entry(metadata, compress(kind, plain)))
    return [single, *batches]


def _history_seeds() -> list[bytes]:
    framed = [len(entry).to_bytes(2, "big") + entry for entry in _entries()]
    return [b"".join(framed), *framed]


@cache
def parquet_file() -> bytes:
    """A file of history with some entries of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment"
        entries = _entries()
        run = EntryRun(LedgerId(7), 0, entries, [1] + [2] * (len(entries) - 1), 0, 1_700_000_000_000)
        write_segment([run], SegmentOrigin("persistent://public/default/t", LedgerId(7)), str(path))
        return path.read_bytes()


class FileBytes:
    """A file in memory."""

    name = "bytes"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        if offset < 0 or offset + length > self.size:
            raise DamagedSegmentError("the file is shorter")
        return self._data[offset : offset + length]

    def read_into(self, offset: int, room: memoryview) -> None:
        room[:] = self.read_at(offset, len(room))

    def close(self) -> None:
        """Nothing to close."""


def _parquet(data: bytes) -> object:
    """Pages of chance under a footer that is as it was written."""
    whole = parquet_file()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    reader = SegmentReader(FileBytes(data[:pages].ljust(pages, b"\0") + whole[pages:]))
    summary = reader.summary
    runs = reader.entries(LedgerId(7), summary.first_entry, 1 << 16)
    reader.lookup(b"key", 5)
    return [described(run.entries) for run in runs]


HARNESSES: Final = (
    Harness(
        name="blocks",
        run=_block,
        refusals=(),
        seeds=lambda: [bytes(17) + b"\1\0\0\0" + bytes(3) + b"\3\0\0\0abc"],
    ),
    Harness(name="segments", run=_segment, refusals=(CorruptDataError,), seeds=_segment_seeds),
    Harness(name="history", run=_history, refusals=(), seeds=_history_seeds),
    Harness(name="readers", run=_readers, refusals=(), seeds=_entries),
    Harness(
        name="parquet",
        run=_parquet,
        refusals=(DamagedSegmentError,),
        seeds=lambda: [parquet_file()],
        input_bytes_max=64 << 10,
        seconds_max=5,
        memory_bytes_max=256 << 20,
    ),
)
