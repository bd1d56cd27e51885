"""Parquet files of history, made of entries that are choices (`grammar.py`), written and read back; and files
whose footers are damaged."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from fuzzing.grammar import Choices
from fuzzing.harness import Harness, require
from fuzzing.made_harnesses import seeds
from fuzzing.store_harnesses import FileBytes, parquet_file
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.client.compression import compress, decompress_within
from magnetar.client.errors import PayloadError
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.tables.segment_traits import SegmentTraits
from magnetar.tiered.parquet.parquet_history import HistoryError, SegmentOrigin
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, build_batch, build_entry, entry_layout, parse_metadata

_KINDS: Final = (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY)
_LEDGER: Final = LedgerId(7)
_WHOLE: Final = 1 << 24


def _number(choices: Choices) -> int:
    """Of 64 bits, without a sign."""
    return choices.number() % (1 << 64)


def _single(choices: Choices) -> tuple[pb.SingleMessageMetadata, bytes]:
    single = pb.SingleMessageMetadata()
    if choices.below(2):
        single.partition_key = choices.text()
    if choices.below(4) == 0:
        single.properties.add(key=choices.text(), value=choices.text())
    if choices.below(4) == 0:
        single.event_time, single.sequence_id = _number(choices), _number(choices)
    single.compacted_out, single.null_value = choices.below(4) == 0, choices.below(4) == 0
    return single, choices.some(30)


def _entry(choices: Choices) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name=choices.text(), sequence_id=_number(choices), publish_time=_number(choices)
    )
    for _ in range(choices.below(3)):
        metadata.properties.add(key=choices.text(), value=choices.text())
    what = choices.below(64)
    if what & 1:
        metadata.partition_key, metadata.partition_key_b64_encoded = choices.text(), bool(choices.below(2))
    if what & 2:
        metadata.event_time, metadata.schema_version = _number(choices), choices.some(9)
    if what & 4:
        metadata.uuid, metadata.chunk_id = choices.text(), choices.below(256)
        metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = choices.below(256), choices.below(256)
    if what & 8:
        metadata.txnid_least_bits, metadata.txnid_most_bits = _number(choices), _number(choices)
    if what & 16:
        metadata.ordering_key, metadata.null_value = choices.some(9), bool(choices.below(2))
    payload = choices.some(60)
    if what & 32:
        messages = [_single(choices) for _ in range(1 + choices.below(3))]
        payload, metadata.num_messages_in_batch = build_batch(messages), len(messages) + choices.below(2)
    kind = choices.one(_KINDS)
    if choices.below(2):
        metadata.compression, metadata.uncompressed_size = kind, len(payload) + choices.below(2)
        payload = compress(kind, payload)
    return choices.damaged(build_entry(metadata, payload))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="magnetar-fuzz-")


def _opened(entry: bytes) -> tuple[bytes, bytes]:
    """Metadata and payload of a compressed entry, whose payload may be compressed with other bytes; any other
    entry as it is."""
    try:
        _, start, stop = entry_layout(entry)
        metadata = parse_metadata(entry[start:stop])
        if metadata.compression == pb.NONE:
            return b"", entry
        return entry[start:stop], decompress_within(
            metadata.compression, entry[stop:], metadata.uncompressed_size
        )
    except (EntryError, PayloadError):
        return b"", entry


def _history(data: bytes) -> object:
    """All entries come back, whatever they hold, and the last one can be read alone."""
    choices, runs, index = Choices(data), list[EntryRun](), 0
    first = last = choices.below(256)
    for _ in range(1 + choices.below(3)):
        entries = [_entry(choices) for _ in range(1 + choices.below(4))]
        counts = [1 + choices.below(3) for _ in entries]
        runs.append(EntryRun(_LEDGER, last, entries, counts, index, _number(choices) % (1 << 42)))
        index, last = index + sum(counts), last + len(entries)
    path = Path(_folder().name) / "segment"
    path.unlink(missing_ok=True)
    write_segment(runs, SegmentOrigin("persistent://public/default/t", _LEDGER), str(path))
    reader = SegmentReader(FileBytes(path.read_bytes()))
    written = [bytes(entry) for run in runs for entry in run.entries]
    found = [bytes(entry) for run in reader.entries(_LEDGER, first, _WHOLE) for entry in run.entries]
    require(list(map(_opened, found)) == list(map(_opened, written)), "what was read is not what was written")
    alone = reader.entries(_LEDGER, last - 1, 1)
    require(bytes(alone[0].entries[0]) == found[-1], "an entry that is read alone is another one")
    return len(reader.lookup(b"key", 5)), len(written)


@cache
def _parts() -> tuple[bytes, bytes]:
    """A file, and its footer."""
    whole = parquet_file()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    return whole[:start], whole[start:-8]


def read_all(whole: bytes) -> object:
    """Everything that readers of history do with a file: plan, look up, and read. Raises HistoryError."""
    reader = SegmentReader(FileBytes(whole))
    metadata = reader.metadata
    spans = reader.spans.ledgers
    traits = SegmentTraits.of(metadata)
    metadata.schema.to_arrow_schema()
    found = len(reader.schemas), len(reader.lookup(b"key", 5)), reader.position_at(spans[0].ledger_id, 0)
    entries = 0
    for span in spans[:2]:
        entries += sum(len(run.entries) for run in reader.entries(span.ledger_id, span.first_entry, 1 << 16))
    return reader.summary, traits.is_plain, found, entries


def _with_footer(footer: bytes) -> object:
    body, _ = _parts()
    return read_all(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


HARNESSES: Final = (
    Harness(
        name="footers",
        run=_with_footer,
        refusals=(HistoryError,),
        seeds=lambda: [_parts()[1]],
        input_bytes_max=16 << 10,
        seconds_max=5,
        memory_bytes_max=256 << 20,
    ),
    Harness(
        name="made-history",
        run=_history,
        refusals=(),
        seeds=seeds,
        input_bytes_max=600,
        seconds_max=5,
        memory_bytes_max=256 << 20,
    ),
)
