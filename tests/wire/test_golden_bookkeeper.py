"""Bytes that Apache BookKeeper 4.17.3 made (golden/bookkeeper/Record.java says how)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.wire.bookkeeper import v2, v3_requests, v3_responses
from magnetar.wire.bookkeeper.availability import decode_entries, encode_entries
from magnetar.wire.bookkeeper.bookie import BookieParser, encode_response
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.digests import Digester, DigestType, LedgerEntry, master_key
from magnetar.wire.bookkeeper.requests import (
    LAST_ENTRY,
    AddRun,
    Auth,
    BatchRead,
    BookieInfo,
    ForceLedger,
    ListEntries,
    Read,
    ReadLac,
    Request,
    StartTls,
    WriteLac,
)
from magnetar.wire.bookkeeper.responses import (
    Added,
    AuthDone,
    BatchReadDone,
    BookieInfoDone,
    EntriesListed,
    Forced,
    LacRead,
    LacWritten,
    ReadDone,
    Refused,
    Response,
    TlsStarts,
)
from magnetar.wire.bookkeeper.status import Status, of_v2, of_v3

_LINES = (Path(__file__).parent / "golden" / "bookkeeper" / "vectors.txt").read_text().splitlines()
VECTORS = {name: bytes.fromhex(data) for name, data in (line.split(" ") for line in _LINES)}

PASSWORD = b"secret"
KEY = master_key(PASSWORD)
PAYLOAD = b"payload bytes"
LEDGER = 0x123456789ABC
ENTRY = 7
TXN = 300
RANGE_READ = 3


def add_run(entry: bytes, *, recovery: bool = False, v3: bool = False, deferred_sync: bool = False) -> AddRun:
    run = AddRun(LEDGER, KEY, recovery=recovery, high_priority=recovery, deferred_sync=deferred_sync, v3=v3)
    run.entry_ids.append(ENTRY)
    run.entries.append(entry)
    run.size_bytes = len(entry)
    if run.txn_ids is not None:
        run.txn_ids.append(TXN)
    return run


REQUESTS: dict[str, Request] = {
    "v2.read": Read(LEDGER, ENTRY),
    "v2.read.urgent": Read(LEDGER, ENTRY, high_priority=True),
    "v2.read.fence": Read(LEDGER, LAST_ENTRY, fence=True, master_key=KEY),
    "v2.batch": BatchRead(LEDGER, ENTRY, 99, 10, 4096),
    "v2.batch.fence": BatchRead(LEDGER, ENTRY, 99, 10, 4096, fence=True, master_key=KEY),
    "v2.auth": Auth("plugin", PAYLOAD),
    "v3.read": Read(LEDGER, ENTRY, txn_id=TXN),
    "v3.read.fence": Read(LEDGER, LAST_ENTRY, txn_id=TXN, fence=True, master_key=KEY),
    "v3.read.poll": Read(LEDGER, LAST_ENTRY, txn_id=TXN, previous_lac=6, timeout_ms=1000, piggyback=True),
    "v3.read.wait": Read(LEDGER, ENTRY, txn_id=TXN, previous_lac=6, timeout_ms=1000),
    "v3.writelac": WriteLac(LEDGER, 42, KEY, PAYLOAD, TXN),
    "v3.readlac": ReadLac(LEDGER, TXN),
    "v3.force": ForceLedger(LEDGER, TXN),
    "v3.list": ListEntries(LEDGER, TXN),
    "v3.info": BookieInfo(TXN, capacity=True, free=True),
    "v3.tls": StartTls(TXN),
    "v3.auth": Auth("plugin", PAYLOAD, TXN),
}

RESPONSES: dict[str, Response] = {
    "v2.done": ReadDone(LEDGER, ENTRY, Status.OK, entry=PAYLOAD),
    "v2.done.none": ReadDone(LEDGER, ENTRY, Status.NO_ENTRY),
    "v2.done.batch": BatchReadDone(LEDGER, ENTRY, 99, Status.OK, (PAYLOAD, b"x")),
    "v2.done.batch.none": BatchReadDone(LEDGER, ENTRY, 99, Status.NO_ENTRY),
    "v2.authdone": AuthDone("plugin", PAYLOAD),
    "v3.done": ReadDone(LEDGER, ENTRY, Status.OK, TXN, PAYLOAD, 6, 1700000000000),
    "v3.done.none": ReadDone(LEDGER, ENTRY, Status.NO_ENTRY, TXN),
    "v3.lacwritten": LacWritten(LEDGER, Status.OK, TXN),
    "v3.lacread": LacRead(LEDGER, Status.OK, TXN, PAYLOAD, PAYLOAD),
    "v3.forced": Forced(LEDGER, Status.OK, TXN),
    "v3.listed": EntriesListed(LEDGER, Status.OK, TXN, PAYLOAD),
    "v3.infodone": BookieInfoDone(Status.OK, TXN, 1000, 10),
    "v3.tlsstarts": TlsStarts(Status.OK, TXN),
    "v3.authdone": AuthDone("plugin", PAYLOAD, Status.OK, TXN),
    "v3.refused": Refused(RANGE_READ, Status.BAD_REQUEST, TXN),
}

ADDS = ["v3.add", "v3.add.recovery", "v3.add.deferred"] + [
    f"v2.add{recovery}.{kind.name}" for kind in DigestType for recovery in ("", ".recovery")
]
ANSWERS_TO_ADDS = {"v2.added": Status.OK, "v2.added.fenced": Status.FENCED, "v3.added": Status.OK}


def fields(run: AddRun) -> tuple[object, ...]:
    return tuple(getattr(run, name) for name in AddRun.__slots__)


def test_every_packet_is_compared() -> None:
    packets = {name for name in VECTORS if name.startswith("v")}
    assert packets == REQUESTS.keys() | RESPONSES.keys() | set(ADDS) | ANSWERS_TO_ADDS.keys()


def test_keys() -> None:
    assert master_key(PASSWORD) == VECTORS["key.secret"]
    assert master_key(b"") == VECTORS["key.empty"]


@pytest.mark.parametrize("kind", DigestType)
def test_entries_and_their_digests(kind: DigestType) -> None:
    digester = Digester(LEDGER, kind, PASSWORD)
    golden = VECTORS[f"entry.{kind.name}"]
    assert digester.seal(ENTRY, 5, 1000, PAYLOAD) + PAYLOAD == golden
    assert digester.open(golden, ENTRY) == LedgerEntry(LEDGER, ENTRY, 5, 1000, PAYLOAD)
    assert digester.seal_lac(42) == VECTORS[f"lac.{kind.name}"]
    assert digester.open_lac(VECTORS[f"lac.{kind.name}"]) == 42


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    golden = VECTORS[name]
    assert b"".join(encode_request(REQUESTS[name], is_v2=name.startswith("v2"))) == golden
    assert BookieParser().parse(golden, len(golden)) == ([REQUESTS[name]], len(golden))


@pytest.mark.parametrize("name", ADDS)
def test_adds(name: str) -> None:
    golden = VECTORS[name]
    is_v2 = name.startswith("v2")
    entry = VECTORS["entry." + name.rpartition(".")[2]] if is_v2 else PAYLOAD
    recovery = ".recovery" in name
    deferred_sync = name in ("v3.add.recovery", "v3.add.deferred")
    run = add_run(entry, recovery=recovery, v3=not is_v2, deferred_sync=deferred_sync)
    assert b"".join(encode_request(run, is_v2=is_v2)) == golden
    (parsed,), consumed = BookieParser().parse(golden, len(golden))
    assert isinstance(parsed, AddRun)
    assert fields(parsed) == fields(run)
    assert consumed == len(golden)


@pytest.mark.parametrize("name", RESPONSES)
def test_answers(name: str) -> None:
    golden = VECTORS[name]
    assert b"".join(encode_response(RESPONSES[name])) == golden
    parser = BookieClientParser(is_v2=name.startswith("v2"))
    assert parser.parse(golden, len(golden)) == ([RESPONSES[name]], len(golden))


@pytest.mark.parametrize(("name", "status"), ANSWERS_TO_ADDS.items())
def test_answers_to_adds(name: str, status: Status) -> None:
    golden = VECTORS[name]
    is_v2 = name.startswith("v2")
    assert b"".join(encode_response(Added(LEDGER, status, [ENTRY], None if is_v2 else [TXN]))) == golden
    (added,), _ = BookieClientParser(is_v2=is_v2).parse(golden, len(golden))
    assert isinstance(added, Added)
    assert (added.ledger_id, added.status, added.entry_ids) == (LEDGER, status, [ENTRY])
    assert added.txn_ids == (None if is_v2 else [TXN])


NAMES = {
    "EOK": Status.OK,
    "ENOLEDGER": Status.NO_LEDGER,
    "ENOENTRY": Status.NO_ENTRY,
    "EBADREQ": Status.BAD_REQUEST,
    "EIO": Status.IO_ERROR,
    "EUA": Status.UNAUTHORIZED,
    "EBADVERSION": Status.BAD_VERSION,
    "EFENCED": Status.FENCED,
    "EREADONLY": Status.READ_ONLY,
    "ETOOMANYREQUESTS": Status.TOO_MANY_REQUESTS,
    "EUNKNOWNLEDGERSTATE": Status.UNKNOWN_LEDGER_STATE,
}


@pytest.mark.parametrize(("version", "of"), [("v2", of_v2), ("v3", of_v3)])
def test_statuses(version: str, of: Callable[[int], Status]) -> None:
    prefix = f"status.{version}."
    golden = {name.removeprefix(prefix): number for name, number in VECTORS.items() if prefix in name}
    assert {name: of(int.from_bytes(number)) for name, number in golden.items()} == NAMES


def test_packets_of_both_versions_are_what_the_room_says_they_are() -> None:
    assert v3_requests.parse_request(VECTORS["v2.read"][4:]) is None
    assert v2.parse_request(VECTORS["v2.read"][4:]) == REQUESTS["v2.read"]
    assert v3_responses.parse_response(VECTORS["v3.done"][4:]) == RESPONSES["v3.done"]


HELD = {
    "entries.none": [],
    "entries.one": [range(5, 6)],
    "entries.run": [range(5)],
    "entries.ragged": [range(3), range(10, 11), range(12, 13), range(14, 15), range(20, 22), range(40, 41)],
    "entries.striped": [range(2), range(3, 5), range(6, 8), range(9, 11)],
}


@pytest.mark.parametrize("name", HELD)
def test_lists_of_entries(name: str) -> None:
    assert list(decode_entries(VECTORS[name])) == HELD[name]


@pytest.mark.parametrize("name", ["entries.none", "entries.one", "entries.run"])
def test_lists_of_entries_without_groups_of_several_are_the_same_bytes(name: str) -> None:
    assert encode_entries(HELD[name]) == VECTORS[name]


def test_a_group_of_several_runs_is_read_there_as_here() -> None:
    """Apache's bookies write one run a group; its clients read groups of several all the same."""
    grouped = encode_entries(HELD["entries.striped"])
    assert grouped == VECTORS["entries.grouped"]
    held = {entry for run in decode_entries(grouped) for entry in run}
    assert [entry in held for entry in range(14)] == [bit == 1 for bit in VECTORS["entries.grouped.held"]]
