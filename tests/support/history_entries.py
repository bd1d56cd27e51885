"""Generated entries, sound and broken, as a ledger may hold them."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from hypothesis import strategies as st

from magnetar.base.entries import EntryRun
from magnetar.client.compression import compress
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

TEXTS = st.text(max_size=12)
WORDS = st.sampled_from(["", "a", "key-1", "key-2", "Grüße", "k" * 130, "\x00"])
BYTES = st.one_of(st.binary(max_size=20), st.just(b"\xff\xfe"), st.just(b"x" * 200))
PAYLOADS = st.one_of(
    st.binary(max_size=40), st.just(b""), st.just(b'{"a":1}'), st.integers(100, 5000).map(lambda n: b"v" * n)
)
TIMES = st.one_of(
    st.just(0), st.integers(1_600_000_000_000, 1_700_000_000_000), st.integers(0, (1 << 64) - 1)
)
NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3)


@dataclass(frozen=True)
class Stored:
    """An entry and what the log counted for it."""

    entry: bytes
    count: int


def _set(draw: st.DrawFn, message: object, name: str, values: st.SearchStrategy[object]) -> None:
    if draw(st.booleans()):
        setattr(message, name, draw(values))


def _key(draw: st.DrawFn, message: pb.MessageMetadata | pb.SingleMessageMetadata) -> None:
    kind = draw(st.sampled_from(["none", "text", "java", "bytes", "odd", "null"]))
    if kind in ("text", "java"):
        message.partition_key = draw(WORDS)
        if kind == "java":
            message.partition_key_b64_encoded = False
    elif kind == "bytes":
        message.partition_key = base64.b64encode(draw(BYTES)).decode()
        message.partition_key_b64_encoded = True
    elif kind == "odd":
        message.partition_key = draw(st.sampled_from(["not base64!", "YQ", "YR==", "Y Q = ="]))
        message.partition_key_b64_encoded = True
    elif kind == "null":
        message.null_partition_key = True
        if draw(st.booleans()):
            message.partition_key = "left over"
    _set(draw, message, "ordering_key", BYTES)
    for key, value in draw(PAIRS):
        pair = message.properties.add()
        pair.key, pair.value = key, value


@st.composite
def metadata(draw: st.DrawFn) -> pb.MessageMetadata:
    """MessageMetadata with what clients set, and what they seldom set."""
    made = pb.MessageMetadata(producer_name=draw(TEXTS), sequence_id=draw(NUMBERS), publish_time=draw(TIMES))
    if draw(st.booleans()):
        _key(draw, made)
    if draw(st.booleans()):
        _set(draw, made, "event_time", TIMES)
        _set(draw, made, "schema_version", st.one_of(BYTES, st.just(bytes(8))))
        _set(draw, made, "replicated_from", TEXTS)
        _set(draw, made, "deliver_at_time", st.integers(-(1 << 63), (1 << 63) - 1))
        _set(draw, made, "highest_sequence_id", NUMBERS)
        _set(draw, made, "null_value", st.booleans())
        _set(draw, made, "txnid_least_bits", NUMBERS)
        _set(draw, made, "txnid_most_bits", NUMBERS)
        _set(draw, made, "uncompressed_size", st.integers(0, 100))
        _set(draw, made, "marker_type", st.integers(-1, 12))
    if draw(st.integers(0, 9)) == 0:
        made.replicate_to.append("__local__")
        _set(draw, made, "schema_id", BYTES)
        _set(draw, made, "entry_hash_min", st.integers(0, 65535))
    return made


@st.composite
def singles(draw: st.DrawFn) -> tuple[pb.SingleMessageMetadata, bytes]:
    """A message of a batch; some taken out by compaction."""
    single = pb.SingleMessageMetadata(payload_size=0)
    if draw(st.integers(0, 5)) == 0:
        single.compacted_out = True
        return single, b""
    if draw(st.booleans()):
        _key(draw, single)
    _set(draw, single, "event_time", TIMES)
    _set(draw, single, "sequence_id", NUMBERS)
    _set(draw, single, "null_value", st.booleans())
    return single, draw(PAYLOADS)


@st.composite
def sound_entries(draw: st.DrawFn) -> Stored:
    """An entry that clients can read: plain or batch, compressed or not, a piece, or encrypted."""
    made = draw(metadata())
    count = 1
    kind = draw(
        st.sampled_from(["plain", "plain", "batch", "batch", "uniform", "piece", "encrypted", "empty"])
    )
    payload = draw(PAYLOADS)
    if kind == "batch":
        messages = draw(st.lists(singles(), min_size=1, max_size=6))
        count = made.num_messages_in_batch = len(messages)
        payload = build_batch(messages)
    elif kind == "uniform":
        count = made.num_messages_in_batch = draw(st.integers(4, 9))
        payload = build_batch((pb.SingleMessageMetadata(sequence_id=i), b"12345678") for i in range(count))
        made.sequence_id = 0
        if draw(st.booleans()):
            made.highest_sequence_id = count - 1
    elif kind == "empty":
        made.num_messages_in_batch = 0
        payload = b""
    elif kind == "piece":
        made.uuid = draw(TEXTS)
        made.num_chunks_from_msg = draw(st.integers(1, 5))
        made.chunk_id = draw(st.integers(0, 4))
        made.total_chunk_msg_size = draw(st.integers(0, 10_000))
    codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
    if codec or draw(st.booleans()):
        made.compression = codec
        made.uncompressed_size = len(payload)
        payload = compress(codec, payload)
    if kind == "encrypted":
        made.encryption_keys.add(key="k", value=b"secret")
        made.encryption_algo = "AES"
        payload = payload[::-1]
        if draw(st.booleans()):
            count = made.num_messages_in_batch = 7
    entry = build_entry(made, payload)
    return Stored(entry if draw(st.integers(0, 5)) else entry[6:], count)


@st.composite
def broken_entries(draw: st.DrawFn) -> Stored:
    """Bytes that are not an entry, or one that was cut, flipped or counted wrongly."""
    stored = draw(sound_entries())
    entry = bytearray(stored.entry)
    kind = draw(st.sampled_from(["cut", "flip", "more", "count", "bytes", "unknown"]))
    if kind == "cut":
        del entry[draw(st.integers(0, len(entry))) :]
    elif kind == "flip":
        for _ in range(draw(st.integers(1, 3))):
            entry[draw(st.integers(0, len(entry) - 1))] ^= draw(st.integers(1, 255))
    elif kind == "more":
        entry += draw(st.binary(min_size=1, max_size=9))
    elif kind == "count":
        return Stored(stored.entry, stored.count + 1)
    elif kind == "bytes":
        entry = bytearray(draw(st.binary(max_size=30)))
    else:
        # A field that no version knows, in front of the others.
        raw = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2).SerializeToString()
        head = b"\xf8\x07\x01" + raw
        entry = bytearray(len(head).to_bytes(4, "big") + head + b"payload")
        return Stored(bytes(entry), 1)
    return Stored(bytes(entry), stored.count)


ENTRIES = st.one_of(sound_entries(), sound_entries(), broken_entries())


@st.composite
def ledgers(draw: st.DrawFn, entries: st.SearchStrategy[Stored] = ENTRIES) -> list[EntryRun]:
    """Consecutive runs of one ledger, at least one entry."""
    stored = draw(st.lists(entries, min_size=1, max_size=12))
    first = entry_id = draw(st.integers(0, 5))
    index = draw(st.integers(0, 1000))
    time_ms = 1_700_000_000_000
    runs: list[EntryRun] = []
    at = 0
    while at < len(stored):
        stop = draw(st.integers(at + 1, len(stored)))
        part = stored[at:stop]
        counts = [each.count for each in part]
        plain = all(count == 1 for count in counts)
        runs.append(
            EntryRun(7, entry_id, [each.entry for each in part], None if plain else counts, index, time_ms)
        )
        index += sum(counts)
        entry_id += len(part)
        time_ms += draw(st.integers(0, 1000))
        at = stop
    assert first == runs[0].first_entry
    return runs
