"""Harnesses of values in the metadata: damaged disks, other programs and older versions leave any bytes.

The checks are those of `magnetar doctor metadata`, which read a value with the code of the broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from fuzzing.harness import Harness, require
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.ownership.records import BrokerReport, BrokerUrls, decode_move
from magnetar.broker.transactions.acks import STORED_MAX
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.outcomes import PAGE_BYTES, Outcomes
from magnetar.broker.transactions.pending import PendingAcks
from magnetar.broker.transactions.transaction import Transaction
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import (
    LedgerMetadata,
    LedgerMetadataError,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from magnetar.managedlog.cursors.ack_words import ACK_SET_WORDS_MAX, WORD_BITS, words_of_bits
from magnetar.managedlog.cursors.cursor_codec import CursorValue, decode_entry, decode_info, encode_info
from magnetar.managedlog.cursors.cursor_delta import CursorDelta
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata, decode, encode
from magnetar.server.storage.metadata_kinds import KINDS

_PATHS: Final = {
    "/ledgers/...": "/ledgers/00/0000/L0001",
    "/loadbalance/resource-quota/...": "/loadbalance/resource-quota/root",
    "/schemas/{tenant}/{namespace}/{topic}": "/schemas/a/n/t/0000000000",
}


_FULL_BYTES: Final = 600 << 20
"""Some bytes of a sound value may say that four billion entries are acknowledged, see `FULL_MAX`."""


def _path_of(name: str) -> str:
    """A path of a kind."""
    return _PATHS.get(name) or re.sub(r"\{[^}]*\}", "1", name.replace("{...}", "a/n/persistent"))


_CHECKS: Final = [(kind, _path_of(kind.name)) for kind in KINDS]
_OTHERS: Final[tuple[Callable[[bytes], object], ...]] = (
    BrokerUrls.decode,
    BrokerReport.decode,
    decode_move,
    lambda data: decode_entry(data, "an entry"),
)


def _value(data: bytes) -> object:
    """The first byte: which kind of value."""
    number, value = (data[0] if data else 0) % (len(_CHECKS) + len(_OTHERS)), data[1:]
    if number >= len(_CHECKS):
        found = _OTHERS[number - len(_CHECKS)](value)
        return type(found).__name__
    kind, path = _CHECKS[number]
    require(kind.has(path), f"{path} is another kind than {kind.name}")
    return kind.name, list(kind.check(path, value))


def _stored(data: bytes) -> object:
    """What was read is written as it will be read again."""
    number, value = (data[0] if data else 0) % 3, data[1:]
    if number == 0:
        again = encode(decode(value, "a log"))
        require(encode(decode(again, "a log")) == again, "a log is another one when it is read again")
    elif number == 1:
        again = encode_info(decode_info(value, "a cursor"))
        same = encode_info(decode_info(again, "a cursor"))
        require(same == again, "a cursor is another one when it is read again")
    else:
        try:
            again = encode_ledger_metadata(decode_ledger_metadata(value))
        except LedgerMetadataError as error:
            return type(error).__name__
        same = encode_ledger_metadata(decode_ledger_metadata(again))
        require(same == again, "a ledger is another one when it is read again")
    return number, again


def _transaction(header: bytes) -> Transaction:
    txn = Transaction(TxnId(0, 1), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
    txn.read(header, 0)
    return txn


def _header(data: bytes) -> object:
    txn = _transaction(data)
    txn.check()
    again = txn.header()
    require(_transaction(again).header() == again, "a header is another one when it is read again")
    require(0 <= txn.ttl_ms < 1 << 63 and abs(txn.started_ms) < 1 << 63, "times that no clock has")
    named = 0
    pending: dict[tuple[str, str], PendingAcks] = {}
    for topic, subscriptions in txn.acks.items():
        for name, acks in subscriptions.items():
            named += len(acks)
            waiting = pending[topic, name] = PendingAcks()
            waiting.recovered(txn.id, acks)
            waiting.check()
            for bits, size in acks.parts.values():
                require(0 < size <= WORD_BITS * ACK_SET_WORDS_MAX, f"a batch of {size} messages")
                words_of_bits(((1 << size) - 1) & ~bits)
    require(named <= STORED_MAX, f"{named} entries")
    return str(txn.state), sorted(txn.topics), named, len(again)


def _outcomes(data: bytes) -> object:
    """The first two bytes: a page's number and a transaction of it."""
    outcomes, page = Outcomes(), data[2:]
    number, index = (data[:2] + bytes(2))[:2]
    try:
        outcomes.read(number, page)
    except ValueError:
        require(outcomes.damaged[number] == page, "damaged bytes are kept")
        require(outcomes.of(number * 1_024 + index) is None, "an outcome of a damaged page")
        return "damaged"
    require(outcomes.page(number) == page, "a page is another one when it is read again")
    return str(outcomes.of(number * 1_024 + index))


def _value_seeds() -> list[bytes]:
    documents = (
        b'{"adminRoles":["a"],"allowedClusters":["standalone"],"partitions":4,"publishRateInMsgs":5}',
        b'{"retention_policies":{"retentionTimeInMinutes":5,"retentionSizeInMB":-1},"bundles":{"numBundles":4}}',
        b'{"nativeUrl":"pulsar://a:6650","httpUrl":"http://a:80","advertisedListeners":{"x":{}}}',
        b'{"pulsarServiceUrl":"pulsar://a:6650","webServiceUrl":"http://a:80","cpu":{"usage":1e3},"lastStats":{}}',
        b'[{"at_ms":1,"bundle":"a/n/0x00000000_0xffffffff","source":"a","target":"b","reason":"r"}]',
        b'["file:///a"]',
        b"17",
    )
    count = len(_CHECKS) + len(_OTHERS)
    return [bytes([number]) + document for document in documents for number in range(count)]


def _stored_seeds() -> list[bytes]:
    record = LedgerRecord(LedgerId(4), 10, 1_000, 1_700_000_000_000, 3, None, {"a": "b"})
    log = LogMetadata((record, LedgerRecord(LedgerId(9))), Position(LedgerId(9), 3), {"k": "v"}, 13, 5)
    state = CursorDelta(Position(LedgerId(4), 7), True, {}, {Position(LedgerId(4), 9): 0b1011}, {"n": 3}, {})
    cursor = CursorValue(LedgerId(-1), state, {"p": "q"}, 5, (LedgerId(3),), ())
    ledgers = [
        LedgerMetadata(
            LedgerState.CLOSED,
            LedgerEnd(41, 1_000),
            ((0, ("a:1", "b:1", "c:1")), (20, ("a:1", "d:1", "c:1"))),
            2,
            2,
            custom={"x": b"y"},
            format_version=version,
        )
        for version in (1, 2, 3)
    ]
    return [
        b"\0" + encode(log),
        b"\1" + encode_info(cursor),
        *(b"\2" + encode_ledger_metadata(ledger) for ledger in ledgers),
    ]


_HEADER_SEEDS: Final = (
    b'{"s":"OPEN","o":"alice","t":1700000000000,"l":60000,"p":{"persistent://a/n/t":[4,7],"u":[]}}',
    (
        b'{"s":"COMMITTED","o":"","t":1,"l":2,"n":{"persistent://a/n/t":"t"},'
        b'"a":{"t":{"s":{"w":[[4,0,9],[5,3,3]],"b":[[4,11,70,5,3]],"c":[6,1,8,255]}}}}'
    ),
    b'{"s":"ABORTED","o":"","t":1,"l":2,"r":"its time was over"}',
)

HARNESSES: Final = (
    Harness(
        name="metadata-values",
        run=_value,
        refusals=(MagnetarError, ValueError),
        seeds=_value_seeds,
        words=(b"null", b"NaN", b"1e999", b"-1", b"9223372036854775808", b"[[", b'{"a":', b"\\ud800"),
        seconds_max=3.0,
        memory_bytes_max=_FULL_BYTES,
    ),
    Harness(
        name="metadata-stored",
        run=_stored,
        refusals=(MagnetarError, ValueError),
        seeds=_stored_seeds,
        words=(b"BookieMetadataFormatVersion\t", b"\tCLOSED", b"-102"),
        seconds_max=3.0,
        memory_bytes_max=_FULL_BYTES,
    ),
    Harness(
        name="transaction-headers",
        run=_header,
        refusals=(MagnetarError,),
        seeds=lambda: list(_HEADER_SEEDS),
        words=(b'"w":[', b'"b":[', b'"c":[', b"1048575", b"-1", b"1e9", b"null", b"true", b"\\ud800"),
    ),
    Harness(
        name="transaction-outcomes",
        run=_outcomes,
        refusals=(),
        seeds=lambda: [b"\1\2" + bytes(range(256)), b"\0\0" + bytes(PAGE_BYTES - 1)],
        input_bytes_max=300,
    ),
)
