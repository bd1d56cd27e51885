"""Waiting for an open ledger to grow, as transcripts."""

from __future__ import annotations

import pytest

from magnetar.ledger.quorum.last_confirmed import LastConfirmed
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.tailing import TailPoll
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.status import Status

DIGESTER = Digester(1, DigestType.CRC32C)
LAYOUT = QuorumLayout(3, 2, 2)


def entry(entry_id: int, lac: int) -> bytes:
    return DIGESTER.seal(entry_id, lac, 10, b"payload") + b"payload"


def test_the_first_that_knows_more_is_enough() -> None:
    poll = TailPoll(LAYOUT, DIGESTER, 4)
    poll.answered(0, Status.OK, 4, None)
    assert not poll.is_over
    poll.answered(2, Status.OK, 7, entry(5, 4))
    assert poll.is_over
    assert poll.last_confirmed == 7
    assert poll.entry is not None
    assert (poll.entry.entry_id, poll.entry.payload) == (5, b"payload")


def test_it_is_over_when_nobody_is_left() -> None:
    poll = TailPoll(LAYOUT, DIGESTER, 4)
    poll.answered(0, Status.OK, 3, None)
    poll.answered(1, Status.IO_ERROR, None, None)
    assert not poll.is_over
    poll.answered(2, Status.NO_LEDGER, None, None)
    assert poll.is_over
    assert (poll.last_confirmed, poll.entry) == (4, None)


@pytest.mark.parametrize("data", [entry(6, 5), b"rubbish"])
def test_what_comes_along_and_is_not_the_next_entry_is_left(data: bytes) -> None:
    poll = TailPoll(LAYOUT, DIGESTER, 4)
    poll.answered(0, Status.OK, 6, data)
    assert (poll.last_confirmed, poll.entry) == (6, None)


def test_an_explicit_last_add_confirmed_counts() -> None:
    asked = LastConfirmed(QuorumLayout(3, 3, 2), DIGESTER, floor=-1)
    asked.read(0, Status.OK, entry(9, 7), DIGESTER.seal_lac(9))
    assert asked.last_confirmed == 9
    asked.read(1, Status.OK, None, DIGESTER.seal_lac(8))
    assert asked.is_known


def test_a_damaged_explicit_one_makes_its_bookie_unknown() -> None:
    asked = LastConfirmed(QuorumLayout(3, 3, 2), DIGESTER, floor=-1)
    damaged = bytearray(DIGESTER.seal_lac(9))
    damaged[-1] ^= 1
    asked.read(0, Status.OK, entry(8, 7), bytes(damaged))
    asked.read(1, Status.OK, entry(8, 7))
    assert not asked.is_known
    asked.read(2, Status.NO_ENTRY, None)
    assert asked.is_known
    assert asked.last_confirmed == 7
