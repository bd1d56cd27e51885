"""The log of headers: its records, what they leave, and which of them may go."""

from __future__ import annotations

import random

import pytest

from magnetar.broker.transactions.header_log import (
    COMMITTED,
    GIVEN_UP,
    OVER,
    SPARE_BYTES,
    HeaderLine,
    HeaderLog,
    decode,
    encode,
    fold,
)
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction

FIRST, SECOND = TxnId(0, 1), TxnId((1 << 64) - 1, (1 << 64) - 1)


def transaction(id_: TxnId = FIRST) -> Transaction:
    return Transaction(id_, owner="me", ttl_ms=5, started_ms=7, deadline_ms=0)


def test_a_record_has_the_lines_that_it_was_made_of() -> None:
    lines = [
        HeaderLine(FIRST, transaction().header()),
        HeaderLine(SECOND, COMMITTED),
        HeaderLine(FIRST, b"\n\x00"),
    ]
    assert decode(encode(lines)) == lines
    assert decode(encode([])) == []
    assert decode(GIVEN_UP) == []


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:3], lambda data: b"", bytes])
def test_what_is_cut_off_is_no_record(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(ValueError, match=r"checksum|cut off"):
        decode(damage(encode([HeaderLine(FIRST, b"{}"), HeaderLine(SECOND, OVER)]))[:40])


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    data = encode([HeaderLine(FIRST, b"{}"), HeaderLine(SECOND, OVER)])
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 4
        with pytest.raises(ValueError, match=r"checksum|cut off"):
            decode(bytes(flipped))


def test_a_decision_changes_nothing_else_of_the_header() -> None:
    txn = transaction()
    txn.partitions["persistent://public/default/t"] = None
    open_ = txn.header()
    txn.verdict = TxnState.COMMITTED
    assert fold([[HeaderLine(FIRST, open_)], [HeaderLine(FIRST, COMMITTED)]]) == {FIRST: txn.header()}


def test_a_later_header_counts_and_one_that_goes_is_gone() -> None:
    records = [
        [HeaderLine(FIRST, b"a"), HeaderLine(SECOND, b"b")],
        [HeaderLine(FIRST, b"c")],
        [HeaderLine(SECOND, OVER)],
    ]
    assert fold(records) == {FIRST: b"c"}


@pytest.mark.parametrize("before", [[], [HeaderLine(FIRST, b'{"s":"ABORTED"}')], [HeaderLine(FIRST, OVER)]])
def test_a_decision_without_an_open_header_is_a_damaged_one(before: list[HeaderLine]) -> None:
    (header,) = fold([before, [HeaderLine(FIRST, COMMITTED)]]).values()
    with pytest.raises(InvalidHeaderError):
        transaction().read(header, 0)


def test_records_go_from_the_beginning_and_the_last_one_stays() -> None:
    log = HeaderLog()
    log.add([HeaderLine(FIRST, b"a"), HeaderLine(SECOND, b"b")])
    log.add([HeaderLine(SECOND, COMMITTED)])
    log.add([HeaderLine(SECOND, OVER)])
    assert log.not_needed() == [], "the first one is needed, and what ends the second header with it"
    log.add([HeaderLine(FIRST, COMMITTED)])
    assert list(log.places(FIRST)) == [0, 3]
    assert log.not_needed() == [], "a decision is nothing without its header"
    log.add([HeaderLine(FIRST, OVER)])
    assert log.not_needed() == [0, 1, 2, 3]
    log.deleted([0, 1])
    log.check()
    assert log.not_needed() == [2, 3]
    assert log.next == 5


def test_a_header_that_keeps_a_log_of_others_is_to_be_renewed() -> None:
    log = HeaderLog()
    log.add([HeaderLine(FIRST, b"old")])
    assert not log.to_renew()
    log.add([HeaderLine(SECOND, bytes(SPARE_BYTES + 10))])
    assert not log.to_renew(), "it is needed"
    log.add([HeaderLine(SECOND, OVER)])
    assert list(log.to_renew()) == [FIRST]
    version = log.version(FIRST)
    log.add([HeaderLine(FIRST, b"old")], {FIRST})
    assert log.version(FIRST) == version, "its writer knows of nothing"
    assert log.not_needed() == [0, 1, 2]
    log.deleted([0, 1, 2])
    assert not log.to_renew()
    log.check()


def test_what_is_left_after_any_deletion_says_the_same() -> None:
    """Records that are not needed go at any moment: a reader of the rest finds the same headers."""
    chance = random.Random(18)
    for _ in range(200):
        log, records = HeaderLog(), dict[int, list[HeaderLine]]()
        for number in range(30):
            lines = [
                HeaderLine(TxnId(0, id_), chance.choice((OVER, COMMITTED, b'{"s":"OPEN"}%d' % number)))
                for id_ in chance.sample(range(6), chance.randint(1, 4))
            ]
            log.add(lines)
            records[number] = lines
            log.check()
            if chance.random() < 0.3:
                before = fold(records.values())
                gone = log.not_needed()[: chance.randint(0, 9)]
                log.deleted(gone)
                for each in gone:
                    del records[each]
                assert fold(records.values()) == before
