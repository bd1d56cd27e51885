"""Headers that a damaged disk, or another program, has left."""

from __future__ import annotations

import json

import pytest

from magnetar.base.ids import LedgerId, Position
from magnetar.broker.transactions.acks import STORED_MAX, TxnAcks
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.managedlog.cursors.ack_words import ACK_SET_WORDS_MAX, WORD_BITS

_MESSAGES_MAX = WORD_BITS * ACK_SET_WORDS_MAX


TOPIC = "persistent://public/default/t"


def read(**fields: object) -> Transaction:
    txn = Transaction(TxnId(0, 1), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
    txn.read(json.dumps({"s": "OPEN", "o": "", "t": 1, "l": 2, **fields}).encode(), 0)
    return txn


def acks(*subscriptions: dict[str, object]) -> dict[str, dict[str, object]]:
    return {TOPIC: {f"s{number}": each for number, each in enumerate(subscriptions)}}


@pytest.mark.parametrize(
    "stored",
    [
        acks({"w": [[4, 0, STORED_MAX]]}),
        acks({"w": [[4, 0, 10**12]]}),
        acks({"w": [[4, 0, STORED_MAX // 2], [5, 0, STORED_MAX // 2]]}),
        acks({"w": [[4, 0, STORED_MAX // 2]]}, {"w": [[5, 0, STORED_MAX // 2]]}),
        acks({"b": [[4, 1, 10**12, 1]]}),
        acks({"b": [[4, 1, _MESSAGES_MAX + 1, 1]]}),
        acks({"b": [[4, 1, 0, 1]]}),
        acks({"b": [[4, 1, -64, 1]]}),
        acks({"b": [[4, 1, 64, *([1] * (ACK_SET_WORDS_MAX + 1))]]}),
        acks({"c": [4, 1, 10**12, 1]}),
    ],
    ids=lambda stored: json.dumps(stored)[:60],
)
def test_more_than_a_transaction_may_acknowledge_is_refused(stored: object) -> None:
    """In memory each entry takes some hundred bytes, and each batch as many bits as it has messages."""
    with pytest.raises(InvalidHeaderError):
        read(a=stored)


@pytest.mark.parametrize("fields", [{"l": 10**400}, {"t": 10**400}, {"t": -(10**400)}, {"l": -1}, {"l": 1.5}])
def test_times_that_no_clock_has_are_refused(fields: dict[str, object]) -> None:
    """A deadline of them was not a number any more, and the coordinator did not start."""
    with pytest.raises(InvalidHeaderError):
        read(**fields)


def test_as_much_as_may_be_is_read() -> None:
    batches = [[4, STORED_MAX, _MESSAGES_MAX, 1], [5, 0, 3, 2**64 - 1]]
    txn = read(a=acks({"w": [[4, 0, STORED_MAX - 2]], "b": batches}))
    found = txn.acks[TOPIC]["s0"]
    assert len(found.whole) == STORED_MAX - 1
    assert found.parts[Position(LedgerId(4), STORED_MAX)] == (1, _MESSAGES_MAX)
    assert found.parts[Position(LedgerId(5), 0)] == (0b111, 3), "a batch has no more messages than it has"


def test_topics_with_acknowledgements_alone_stay_in_an_aborted_header_of_several_brokers() -> None:
    """The next coordinator waits for their parts; without it they would outlive the header."""
    txn = Transaction(TxnId(0, 1), owner="", ttl_ms=1, started_ms=0, deadline_ms=0)
    txn.acks = {"persistent://public/default/in": {"work": TxnAcks()}}
    txn.ending = txn.verdict = TxnState.ABORTED
    read = Transaction(TxnId(0, 1), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
    read.read(txn.header(parts=True), 0)
    assert read.state is TxnState.ABORTED
    assert read.topics == {"persistent://public/default/in"}
    read.read(txn.header(), 0)
    assert read.topics == set(), "with one broker nothing is left to be done for it"
