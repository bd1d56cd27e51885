from __future__ import annotations

import struct

import pytest

from magnetar.wire.bookkeeper import bookkeeper_pb2 as pb
from magnetar.wire.bookkeeper import v2
from magnetar.wire.bookkeeper.bookie import REQUEST_WORK, BookieParser, encode_response
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.digests import Digester, DigestType, master_key
from magnetar.wire.bookkeeper.requests import (
    AddRun,
    BatchRead,
    ForceLedger,
    Read,
    ReadLac,
    Request,
    Unserved,
    WriteLac,
)
from magnetar.wire.bookkeeper.responses import Added, BatchReadDone, ReadDone, Refused, Response
from magnetar.wire.bookkeeper.status import Status
from magnetar.wire.frames import FrameError

KEY = master_key(b"")


def adds(ledger_id: int, ids: list[int], *, txns: list[int] | None = None, recovery: bool = False) -> AddRun:
    run = AddRun(ledger_id, KEY, recovery=recovery, v3=txns is not None)
    digester = Digester(ledger_id, DigestType.CRC32C)
    for entry_id in ids:
        run.entry_ids.append(entry_id)
        run.entries.append(digester.seal(entry_id, entry_id - 1, 4, b"data") + b"data")
    run.txn_ids = txns
    return run


def sent(*requests: Request, is_v2: bool) -> bytes:
    return b"".join(piece for request in requests for piece in encode_request(request, is_v2=is_v2))


def parsed(data: bytes) -> list[Request]:
    requests, consumed = BookieParser().parse(data, len(data))
    assert consumed == len(data)
    return requests


def packet(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def v3_packet(message: pb.Request) -> bytes:
    return packet(message.SerializePartialToString())


@pytest.mark.parametrize("is_v2", [True, False])
def test_adds_of_two_ledgers_that_take_turns_are_two_runs(is_v2: bool) -> None:
    turns = [adds(1 + at % 2, [at // 2], txns=None if is_v2 else [at]) for at in range(10)]
    first, second = parsed(sent(*turns, is_v2=is_v2))
    assert isinstance(first, AddRun)
    assert isinstance(second, AddRun)
    assert (first.ledger_id, first.entry_ids) == (1, [0, 1, 2, 3, 4])
    assert (second.ledger_id, second.entry_ids) == (2, [0, 1, 2, 3, 4])
    assert first.txn_ids == (None if is_v2 else [0, 2, 4, 6, 8])
    assert first.size_bytes == sum(map(len, first.entries)) == 5 * 40


def test_adds_that_differ_in_more_than_entry_are_different_runs() -> None:
    other_key = adds(1, [2])
    other_key.master_key = bytes(20)
    runs = parsed(sent(adds(1, [0]), adds(1, [1], recovery=True), other_key, adds(1, [3]), is_v2=True))
    assert [run.entry_ids for run in runs if isinstance(run, AddRun)] == [[0, 3], [1], [2]]


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_fence_is_never_overtaken_by_an_add(is_v2: bool) -> None:
    txn = None if is_v2 else 9
    fence = Read(1, -1, txn_id=txn, fence=True, master_key=KEY)
    before, after = (adds(1, [at], txns=None if is_v2 else [at]) for at in (0, 1))
    requests = parsed(sent(before, fence, after, is_v2=is_v2))
    assert [type(request) for request in requests] == [AddRun, Read, AddRun]
    assert requests[1] == fence


@pytest.mark.parametrize("is_v2", [True, False])
def test_bytes_may_come_one_by_one(is_v2: bool) -> None:
    txn = None if is_v2 else 1
    data = sent(adds(1, [0, 1], txns=None if is_v2 else [5, 6]), Read(1, 0, txn_id=txn), is_v2=is_v2)
    parser = BookieParser()
    seen: list[Request] = []
    waiting = b""
    for at in range(len(data)):
        waiting += data[at : at + 1]
        requests, consumed = parser.parse(waiting, len(waiting))
        waiting = waiting[consumed:]
        assert parser.needed in (0, 4 + struct.unpack(">I", waiting[:4].ljust(4, b"\0"))[0])
        seen += requests
    assert waiting == b""
    assert [type(request) for request in seen] == [AddRun, AddRun, Read]


def test_the_first_packet_that_is_not_version_3_makes_it_version_2_for_ever() -> None:
    parser = BookieParser()
    for data, is_v2 in ((sent(ReadLac(1, 1), is_v2=False), False), (sent(Read(1, 0), is_v2=True), True)):
        parser.parse(data, len(data))
        assert parser.is_v2 is is_v2
    with pytest.raises(FrameError):
        parser.parse(sent(ReadLac(1, 1), is_v2=False), 24)


def test_a_request_of_version_3_that_lacks_something_required_is_none() -> None:
    request = pb.Request()
    request.header.version = pb.VERSION_THREE
    request.header.operation = pb.READ_LAC
    request.header.txnId = 1
    request.readLacRequest.SetInParent()
    data = v3_packet(request)
    with pytest.raises(FrameError):
        BookieParser().parse(data, len(data))


@pytest.mark.parametrize(
    ("version", "operation", "wrong_version"),
    [(pb.VERSION_TWO, pb.READ_LAC, True), (pb.VERSION_THREE, pb.RANGE_ADD_ENTRY, False)],
)
def test_what_can_only_be_refused_keeps_its_number(
    version: pb.ProtocolVersion, operation: pb.OperationType, wrong_version: bool
) -> None:
    request = pb.Request()
    request.header.version = version
    request.header.operation = operation
    request.header.txnId = 77
    assert parsed(v3_packet(request)) == [Unserved(operation, 77, wrong_version)]
    refusal = b"".join(encode_response(Refused(operation, Status.BAD_REQUEST, 77)))
    assert BookieClientParser(is_v2=False).parse(refusal, len(refusal))[0] == [
        Refused(operation, Status.BAD_REQUEST, 77)
    ]


def test_legacy_headers_have_no_flags() -> None:
    body = struct.pack(">Iqq", v2.READ, 5, 6)
    assert parsed(packet(body)) == [Read(5, 6)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02\x01",
        struct.pack(">I", v2.header(v2.ADD)) + b"short",
        struct.pack(">Iq", v2.header(v2.READ), 1),
        struct.pack(">Iqq", v2.header(v2.READ, v2.FENCE), 1, 2) + b"no key",
        struct.pack(">Iqq", v2.header(v2.BATCH_READ), 1, 2),
        struct.pack(">I", v2.header(v2.AUTH)) + b"\xff",
        struct.pack(">I", v2.header(v2.AUTH)),
        struct.pack(">I", v2.header(4)) + bytes(64),
        struct.pack(">I", 3 << 24 | v2.READ << 16) + bytes(64),
    ],
)
def test_bytes_that_are_no_request_end_the_connection(body: bytes) -> None:
    before = sent(Read(1, 0), is_v2=True)
    data = before + packet(body)
    with pytest.raises(FrameError) as caught:
        BookieParser().parse(data, len(data))
    assert caught.value.events == [Read(1, 0)]


def test_a_packet_beyond_the_limit_is_refused_before_it_is_there() -> None:
    for parser in (BookieParser(100), BookieClientParser(is_v2=True, packet_bytes_max=100)):
        with pytest.raises(FrameError, match="packet of 101 bytes, 100 are allowed"):
            parser.parse(struct.pack(">I", 101), 4)


def test_an_add_beyond_the_limit_is_refused_behind_others_too() -> None:
    small = adds(1, [0])
    large = AddRun(1, KEY)
    large.entry_ids.append(1)
    large.entries.append(small.entries[0] + bytes(100))
    data = sent(small, large, is_v2=True)
    with pytest.raises(FrameError, match="packet of 164 bytes, 100 are allowed") as caught:
        BookieParser(100).parse(data, len(data))
    (run,) = caught.value.events
    assert isinstance(run, AddRun)
    assert (run.entry_ids, run.size_bytes) == ([0], len(small.entries[0]))


@pytest.mark.parametrize("other", [None, 0, 1, 20, 39])
@pytest.mark.parametrize("is_longer", [True, False])
def test_many_adds_of_one_size(other: int | None, is_longer: bool) -> None:
    """`other`: one of them differs, in its size or in its ledger."""
    runs = [adds(1, [at]) for at in range(40)]
    if other is not None and is_longer:
        runs[other].entries[0] += b"!"
    elif other is not None:
        runs[other] = adds(2, [other])
    read = parsed(sent(*runs, is_v2=True))
    rows = {
        (run.ledger_id, entry_id): entry
        for run in read
        if isinstance(run, AddRun)
        for entry_id, entry in zip(run.entry_ids, run.entries, strict=True)
    }
    assert rows == {(run.ledger_id, run.entry_ids[0]): run.entries[0] for run in runs}
    assert len(read) == (1 if other is None or is_longer else 2)


def test_large_and_small_adds_take_turns() -> None:
    run = AddRun(1, KEY)
    digester = Digester(1, DigestType.CRC32C)
    run.entry_ids = list(range(6))
    run.entries, _ = digester.seal_all(0, -1, 0, [bytes([at]) * (9_000 if at % 2 else 9) for at in range(6)])
    for requests in ([run], [adds(1, [9]), run]):
        (read,) = parsed(sent(*requests, is_v2=True))
        assert isinstance(read, AddRun)
        assert read.entries[-6:] == run.entries
        assert read.entry_ids[-6:] == run.entry_ids
        assert read.size_bytes == sum(map(len, read.entries))


def test_fields_behind_those_that_are_known_are_ignored() -> None:
    data = packet(struct.pack(">Iqq", v2.header(v2.READ), 1, 2) + b"more")
    assert parsed(data) == [Read(1, 2)]


@pytest.mark.parametrize("request_", [ForceLedger(1, 2), ReadLac(1, 2)])
def test_version_2_refuses_what_it_does_not_have(request_: Request) -> None:
    with pytest.raises(ValueError, match="version 2 has no"):
        encode_request(request_, is_v2=True)


@pytest.mark.parametrize("request_", [Read(1, 2), adds(1, [2]), BatchRead(1, 2, 3, 4, 5)])
def test_version_3_refuses_what_has_no_number(request_: Request) -> None:
    with pytest.raises(ValueError, match="version 3"):
        encode_request(request_, is_v2=False)


@pytest.mark.parametrize("txns", [None, [7, 8, 9]])
def test_answers_with_one_outcome_come_as_one(txns: list[int] | None) -> None:
    data = b"".join(
        piece
        for answer in (
            Added(1, Status.OK, [0, 1], txns and txns[:2]),
            Added(1, Status.FENCED, [2], txns and txns[2:]),
        )
        for piece in encode_response(answer)
    )
    answers, _ = BookieClientParser(is_v2=txns is None).parse(data, len(data))
    assert [(a.status, a.entry_ids, a.txn_ids) for a in answers if isinstance(a, Added)] == [
        (Status.OK, [0, 1], txns and txns[:2]),
        (Status.FENCED, [2], txns and txns[2:]),
    ]


@pytest.mark.parametrize(
    ("is_v2", "body"),
    [
        (True, b""),
        (True, struct.pack(">Iiq", v2.header(v2.ADD), 0, 1)),
        (True, struct.pack(">Iiqq", v2.header(5), 0, 1, 1)),
        (True, struct.pack(">Iiqq", v2.header(v2.BATCH_READ), 0, 1, 1)),
        (True, struct.pack(">IiqqqI", v2.header(v2.BATCH_READ), 0, 1, 1, 1, 5) + b"four"),
        (True, struct.pack(">IiqqqH", v2.header(v2.BATCH_READ), 0, 1, 1, 1, 5)),
        (False, b"\xff"),
        (False, b""),
    ],
)
def test_bytes_that_are_no_answer_end_the_connection(is_v2: bool, body: bytes) -> None:
    data = packet(body)
    with pytest.raises(FrameError):
        BookieClientParser(is_v2=is_v2).parse(data, len(data))


def test_answers_of_all_kinds_in_any_pieces() -> None:
    answers: list[Response] = [
        Added(1, Status.OK, [0, 1], None),
        Added(2, Status.OK, [2], None),
        ReadDone(1, 5, Status.OK, entry=bytes(40)),
        Added(1, Status.IO_ERROR, [3, 4, 5], None),
        ReadDone(1, 6, Status.NO_ENTRY),
        Added(1, Status.OK, [6], None),
    ]
    data = b"".join(piece for answer in answers for piece in encode_response(answer))
    for step in (1, 27, 28, 29, len(data)):
        parser = BookieClientParser(is_v2=True)
        waiting = b""
        told: list[object] = []
        for at in range(0, len(data), step):
            waiting += data[at : at + step]
            found, consumed = parser.parse(waiting, len(waiting))
            waiting = waiting[consumed:]
            for answer in found:
                if isinstance(answer, Added):
                    told += [(answer.ledger_id, answer.status, entry_id) for entry_id in answer.entry_ids]
                else:
                    told.append(answer)
        assert waiting == b""
        assert told == [
            (1, Status.OK, 0),
            (1, Status.OK, 1),
            (2, Status.OK, 2),
            answers[2],
            *((1, Status.IO_ERROR, entry_id) for entry_id in (3, 4, 5)),
            answers[4],
            (1, Status.OK, 6),
        ]


def test_a_failed_read_has_no_entry() -> None:
    for answer in (ReadDone(1, 2, Status.NO_ENTRY), BatchReadDone(1, 2, 3, Status.NO_ENTRY)):
        data = b"".join(encode_response(answer))
        assert BookieClientParser(is_v2=True).parse(data, len(data))[0] == [answer]


def test_entries_are_not_copied_on_their_way_out() -> None:
    run = adds(1, [0])
    assert any(piece is run.entries[0] for piece in encode_request(run, is_v2=True))
    done = ReadDone(1, 0, Status.OK, entry=run.entries[0])
    assert any(piece is run.entries[0] for piece in encode_response(done))


@pytest.mark.parametrize("length", [0, 20, 21])
def test_no_master_key_is_longer_than_those_of_clients(length: int) -> None:
    """A bookie kept keys of 5 MB in memory, one for each ledger that a fence named."""
    key = bytes(length)
    add = adds(1, [0], txns=[1])
    add.master_key = key
    fence = Read(1, 0, 2, fence=True, master_key=key)
    requests = parsed(sent(add, fence, WriteLac(1, 0, key, b"", 3), is_v2=False))
    assert [isinstance(request, Unserved) for request in requests] == [length > 20] * 3


@pytest.mark.parametrize("is_v2", [True, False])
@pytest.mark.parametrize("work_max", [1, 40, 200])
def test_a_parser_stops_after_so_much_work_and_loses_nothing(work_max: int, is_v2: bool) -> None:
    requests: list[Request] = []
    for at in range(40):
        requests.append(adds(1 + at % 2, [at, at + 100], txns=None if is_v2 else [at, at + 100]))
        if at % 3 == 0:
            requests.append(Read(1, at, txn_id=None if is_v2 else at))
    data = sent(*requests, is_v2=is_v2)
    parser, seen, at = BookieParser(), list[Request](), 0
    stops = 0
    while at < len(data):
        some, consumed = parser.parse(data[at:], len(data) - at, work_max)
        assert some
        assert parser.stopped == (at + consumed < len(data))
        # It stops behind the request that goes beyond.
        assert parser.work < work_max + REQUEST_WORK
        stops += parser.stopped
        seen += some
        at += consumed
    assert stops
    flat: list[list[tuple[int, int] | Read]] = []
    for told in (requests, seen):
        found: list[tuple[int, int] | Read] = []
        for request in told:
            if isinstance(request, AddRun):
                found += [(request.ledger_id, entry_id) for entry_id in request.entry_ids]
            else:
                assert isinstance(request, Read)
                found.append(request)
        flat.append(found)
    # Adds to one ledger keep their order, also around reads; those to several may be gathered.
    for ledger_id in (1, 2):
        asked, got = (
            [each for each in told if isinstance(each, Read) or each[0] == ledger_id] for told in flat
        )
        assert asked == got


def test_adds_of_one_ledger_in_a_row_stay_together_and_count_by_their_bytes() -> None:
    """A broker's vector is not taken apart: its adds are stored together."""
    data = sent(Read(1, 0), adds(1, list(range(1_000))), is_v2=True)
    requests, consumed = (parser := BookieParser()).parse(data, len(data), 40)
    assert (len(requests), consumed) == (2, len(data))
    assert not parser.stopped
    assert 60 < parser.work < 120


def test_adds_to_many_ledgers_are_not_taken_at_once() -> None:
    data = sent(Read(1, 0), *(adds(ledger_id, [0]) for ledger_id in range(1, 2_000)), is_v2=True)
    requests, _ = (parser := BookieParser()).parse(data, len(data), 1_000)
    assert len(requests) < 130
    assert parser.stopped
