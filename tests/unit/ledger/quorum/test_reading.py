"""Reads of one entry, as transcripts."""

from __future__ import annotations

import pytest

from magnetar.ledger.quorum.effects import SendRead
from magnetar.ledger.quorum.entry_read import SILENCE, EntryRead, FoundEntry, NotFound, Unread
from magnetar.ledger.quorum.last_confirmed import LastConfirmed
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.status import Status

DIGESTER = Digester(1, DigestType.CRC32C)
MEMBERS = ("a", "b", "c")


def entry(entry_id: int = 4, lac: int = 3) -> bytes:
    return DIGESTER.seal(entry_id, lac, 10, b"payload") + b"payload"


def begun() -> EntryRead:
    read = EntryRead(4, MEMBERS, (1, 2, 0), DIGESTER)
    assert read.start() == [SendRead("b", 1, 4)]
    return read


def test_the_best_copy_is_enough() -> None:
    read = begun()
    (found,) = read.read(1, Status.OK, entry())
    assert isinstance(found, FoundEntry)
    assert (found.entry.payload, found.bad) == (b"payload", ())
    assert read.is_over
    assert read.read(2, Status.NO_ENTRY, None) == []


@pytest.mark.parametrize(
    ("status", "data"),
    [(Status.OK, b"rubbish"), (Status.OK, entry(5)), (Status.NO_ENTRY, None), (Status.IO_ERROR, None)],
)
def test_a_bad_copy_is_passed_over_and_named(status: Status, data: bytes | None) -> None:
    read = begun()
    assert read.read(1, status, data) == [SendRead("c", 2, 4)]
    (found,) = read.read(2, Status.OK, entry())
    assert isinstance(found, FoundEntry)
    assert found.bad == (1,)
    assert found.absent == ({1} if status is Status.NO_ENTRY else set())


def test_silence_asks_the_next_one_and_an_error_is_no_silence() -> None:
    read = begun()
    assert read.is_silent() == [SendRead("c", 2, 4)]
    assert read.is_silent() == [SendRead("a", 0, 4)]
    assert read.is_silent() == []
    assert read.read(0, SILENCE, None) == []
    (found,) = read.read(1, Status.OK, entry())
    assert isinstance(found, FoundEntry)
    assert found.bad == ()


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        ([Status.NO_ENTRY, Status.NO_LEDGER, Status.NO_ENTRY], Unread.ABSENT),
        ([Status.NO_ENTRY, Status.IO_ERROR, Status.NO_ENTRY], Unread.DAMAGED),
        ([Status.IO_ERROR, Status.IO_ERROR, Status.UNKNOWN_LEDGER_STATE], Unread.DAMAGED),
        ([Status.IO_ERROR, Status.BAD_REQUEST, SILENCE], Unread.UNREACHABLE),
        ([Status.NO_ENTRY, SILENCE, Status.NO_ENTRY], Unread.UNREACHABLE),
        ([Status.NO_ENTRY, Status.UNAUTHORIZED, Status.NO_ENTRY], Unread.UNAUTHORIZED),
        ([Status.NO_ENTRY, Status.BAD_REQUEST, Status.NO_ENTRY], Unread.DAMAGED),
    ],
)
def test_why_there_is_no_copy(statuses: list[Status], reason: Unread) -> None:
    read = begun()
    read.read(1, statuses[0], None)
    read.read(2, statuses[1], None)
    assert read.read(0, statuses[2], None) == [NotFound(reason)]


def test_the_last_confirmed_entry_is_known_when_nothing_can_hide() -> None:
    asked = LastConfirmed(QuorumLayout(3, 3, 2), DIGESTER, floor=-1)
    asked.read(0, Status.OK, entry(9, 7))
    assert not asked.is_known
    asked.read(2, Status.OK, entry(8, 6))
    assert asked.is_known
    assert asked.last_confirmed == 7


def test_who_does_not_answer_for_certain_hides_entries() -> None:
    asked = LastConfirmed(QuorumLayout(3, 3, 2), DIGESTER, floor=5)
    asked.read(0, Status.OK, b"rubbish")
    asked.read(1, Status.IO_ERROR, None)
    asked.read(2, Status.NO_ENTRY, None)
    assert asked.is_over
    assert not asked.is_known
    assert asked.last_confirmed == 5
