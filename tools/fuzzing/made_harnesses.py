"""Harnesses whose inputs are choices (`grammar.py`): they get behind the first look of a parser."""

from __future__ import annotations

import base64
import random
from functools import partial
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from fuzzing import text_harnesses
from fuzzing.grammar import Choices, document
from fuzzing.harness import Harness, require
from fuzzing.wire_harnesses import bookkeeper_events
from magnetar.admin.calls.errors import BadRequestError
from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.entry_blocks import blocks_of
from magnetar.bookie.recovery import SegmentBytes, scan_segment
from magnetar.bookie.segment import DATA_OFFSET
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters.entry_filter import FilterError
from magnetar.schemas.compatibility import check_definition, identity, unreadable
from magnetar.schemas.errors import InvalidSchemaError
from magnetar.schemas.key_value import join
from magnetar.websocket.errors import MessageError, OpeningError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.bookkeeper.bookie_client import encode_request
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.requests import AddRun, BatchRead, Read
from magnetar.wire.frames import FrameError

_SALT: Final = 0x1122334455667788
_SEED_BYTES: Final = 200
_MESSAGE_KEYS: Final = (
    "payload",
    "properties",
    "context",
    "key",
    "eventTime",
    "replicationClusters",
    "sequenceId",
)
_ORDER_KEYS: Final = ("messageId", "type", "permitMessages")
_POLICY_KEYS: Final = (
    *(
        "retentionTimeInMinutes",
        "retentionSizeInMB",
        "limitSize",
        "limitTime",
        "limit",
        "policy",
        "ratePeriodInSecond",
    ),
    *(
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRateInByte",
        "publishThrottlingRateInMsg",
        "active",
        "tickTime",
    ),
)


def _native(choices: Choices) -> bytes:
    files = FileDescriptorSet()
    file = files.file.add(name="f", package=choices.one(("", "p")))
    for name in ("M", "N"):
        message = DescriptorProto(name=name)
        for _ in range(choices.below(4)):
            field = message.field.add(name=choices.text() or "f", number=1 + choices.below(5))
            field.type = choices.one(tuple(range(1, 19)))  # type: ignore[assignment]  # the enum's numbers
            field.label = choices.one((1, 2, 3))  # type: ignore[assignment]  # the enum's numbers
            field.type_name = choices.one((".M", ".N", ".p.M", ".p.N", "", ".gone"))
        file.message_type.append(message)
    packed = base64.b64encode(choices.damaged(files.SerializeToString())).decode()
    root = choices.one(("M", "N", "p.M", "p.N", "gone"))
    return document({"rootMessageTypeName": root, "fileDescriptorSet": packed, "rootFileDescriptorName": "f"})


def _schema(choices: Choices) -> pb.Schema:
    kind = choices.one((pb.Schema.Avro, pb.Schema.Json, pb.Schema.KeyValue, pb.Schema.ProtobufNative))
    if kind == pb.Schema.ProtobufNative:
        data = _native(choices)
    elif kind == pb.Schema.KeyValue:
        data = choices.damaged(join(document(choices.avro()), document(choices.avro())))
    else:
        data = choices.damaged(document(choices.avro()))
    schema = pb.Schema(name="", type=kind, schema_data=data)
    if kind == pb.Schema.KeyValue:
        for part in ("key", "value"):
            schema.properties.add(
                key=f"{part}.schema.type", value=choices.one(("AVRO", "JSON", "STRING", "BYTES", "X"))
            )
    return schema


def _schemas(data: bytes) -> object:
    choices = Choices(data)
    old = _schema(choices)
    check_definition(old)
    require(unreadable(old, old) is None, "a schema does not read what it has written")
    require(identity(old) == identity(old), "a schema is another than itself")
    new = _schema(choices)
    if new.type != old.type:
        return "ok"
    check_definition(new)
    return unreadable(old, new), unreadable(new, old)


def _expressions(data: bytes) -> object:
    choices = Choices(data)
    return text_harnesses.judged(choices.damaged(choices.expression().encode()))


def _policies(data: bytes) -> object:
    choices = Choices(data)
    number = choices.below(256)
    kind = choices.below(3)
    if kind == 0:
        body: object = {choices.one(_POLICY_KEYS): choices.number() for _ in range(choices.below(6))}
    elif kind == 1:
        body = choices.json()
    else:
        body = [choices.json(2) for _ in range(choices.below(3))]
    return text_harnesses.policy(bytes((number,)) + choices.damaged(document(body)))


def _websocket(data: bytes) -> object:
    choices = Choices(data)
    kind = choices.below(3)
    if kind == 2:
        packed = base64.b64encode(
            pb.MessageIdData(ledgerId=choices.number() % (1 << 64), entryId=1).SerializeToString()
        )
        return text_harnesses.websocket(b"\2" + choices.damaged(packed))
    keys = (_MESSAGE_KEYS, _ORDER_KEYS)[kind]
    values = ("aGk=", "2026-01-01T00:00:00Z", "permit", "unsubscribe", "isEndOfTopic", {"a": "b"}, "CAMQBA==")
    body = {
        choices.one(keys): choices.one((choices.one(values), choices.json(2)))
        for _ in range(choices.below(6))
    }
    return text_harnesses.websocket(bytes((kind,)) + choices.damaged(document(body)))


def _bookkeeper(is_v2: bool, data: bytes) -> object:
    choices = Choices(data)
    packets = []
    for number in range(1 + choices.below(4)):
        kind, ledger = choices.below(4), abs(choices.number()) % (1 << 62)
        request: AddRun | Read | BatchRead
        if kind < 2:
            run = request = AddRun(
                LedgerId(ledger), choices.some(20).ljust(20, b"k"), recovery=bool(choices.below(2))
            )
            for _ in range(1 + choices.below(3)):
                entry, payload = abs(choices.number()) % (1 << 62), choices.some(40)
                digest = choices.one((DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC, DigestType.DUMMY))
                run.entry_ids.append(entry)
                run.entries.append(Digester(LedgerId(ledger), digest).seal(entry, -1, 0, payload) + payload)
            if not is_v2:
                run.txn_ids = list(range(len(run.entries)))
        elif kind == 2 or not is_v2:
            request = Read(
                LedgerId(ledger),
                choices.number() % (1 << 62),
                number,
                fence=bool(choices.below(2)),
                master_key=bytes(20),
            )
        else:
            request = BatchRead(LedgerId(ledger), 0, choices.below(200), choices.number() % (1 << 31), number)
        packets.append(choices.damaged(b"".join(encode_request(request, is_v2=is_v2))))
    return bookkeeper_events(choices.damaged(b"".join(packets)))


def _segments(data: bytes) -> object:
    choices = Choices(data)
    log, whole, first, entries_of = b"", True, 0, dict[int, int]()
    for _ in range(1 + choices.below(6)):
        entries = [choices.some(60) for _ in range(1 + choices.below(4))]
        ledger = choices.one((4, 5, 1 << 40))
        counts = [1 + choices.below(3) for _ in entries] if choices.below(2) else None
        for block in blocks_of(LedgerId(ledger), first, entries, counts, first, choices.below(256)):
            offset = DATA_OFFSET + len(log)
            synced_to = offset if choices.below(8) else abs(choices.number()) % (1 << 32)
            log += block.header(_SALT, offset, synced_to, 0, 0, LedgerId(0), 0) + b"".join(block.body.pieces)
        first += len(entries)
        entries_of[ledger] = entries_of.get(ledger, 0) + len(entries)
    damaged = choices.damaged(log)
    whole = damaged == log
    image = bytes(DATA_OFFSET) + damaged + bytes(choices.below(2) * 4_096)
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
    if whole and not scan.found.damages:
        require(set(scan.found.ledgers) == set(entries_of), "a ledger is missing")
    return scan.end, scan.torn_bytes, len(scan.found.damages), sorted(scan.found.ledgers)


def seeds() -> list[bytes]:
    """Inputs of chance, the same in each run."""
    chance = random.Random(1)
    return [chance.randbytes(_SEED_BYTES) for _ in range(40)]


HARNESSES: Final = (
    Harness(
        name="made-schemas", run=_schemas, refusals=(InvalidSchemaError,), seeds=seeds, input_bytes_max=600
    ),
    Harness(
        name="made-expressions", run=_expressions, refusals=(FilterError,), seeds=seeds, input_bytes_max=300
    ),
    Harness(
        name="made-policies",
        run=_policies,
        refusals=(BadRequestError, PreconditionFailedError),
        seeds=seeds,
        input_bytes_max=300,
    ),
    Harness(
        name="made-websocket",
        run=_websocket,
        refusals=(MessageError, OpeningError),
        seeds=seeds,
        input_bytes_max=300,
    ),
    *(
        Harness(
            name=f"made-bookkeeper-v{3 - is_v2}",
            run=partial(_bookkeeper, is_v2),
            refusals=(FrameError,),
            seeds=seeds,
            input_bytes_max=400,
        )
        for is_v2 in (True, False)
    ),
    Harness(
        name="made-segments", run=_segments, refusals=(CorruptDataError,), seeds=seeds, input_bytes_max=600
    ),
)
