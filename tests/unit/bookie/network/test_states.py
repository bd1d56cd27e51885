from __future__ import annotations

import pytest

from magnetar.base.ids import LedgerId
from magnetar.bookie.network.states import (
    DamagedStateError,
    all_in_limbo,
    fence_record,
    gone_record,
    is_complete,
    lac_record,
    ledger_record,
    replay,
    snapshot,
    with_limbo,
)
from magnetar.bookie.served import ServedLedger

KEY = b"k" * 20
PLAIN = ServedLedger(1, KEY, fenced=False)


def test_what_is_recorded_comes_back() -> None:
    records = [
        *snapshot([PLAIN, ServedLedger(2, KEY, fenced=True, lac_blob=b"blob")]),
        ledger_record(ServedLedger(3, b"", fenced=True, limbo=True)),
        fence_record(1),
        lac_record(2, b"newer"),
        ledger_record(ServedLedger(4, KEY, fenced=False)),
        gone_record(4),
    ]
    assert list(replay(records).values()) == [
        ServedLedger(1, KEY, fenced=True),
        ServedLedger(2, KEY, fenced=True, lac_blob=b"newer"),
        ServedLedger(3, b"", fenced=True, limbo=True),
    ]


def test_a_snapshot_that_was_cut_short_does_not_count() -> None:
    records = snapshot([PLAIN, ServedLedger(2, KEY, fenced=True, lac_blob=b"blob")])
    assert len(records) == 4
    assert is_complete(records)
    assert is_complete([*records, fence_record(1)])
    assert [is_complete(records[:count]) for count in range(4)] == [False] * 4
    assert not is_complete([ledger_record(PLAIN)])
    assert is_complete(snapshot([]))


@pytest.mark.parametrize("record", [fence_record(9), lac_record(9, b""), b"\x09" + bytes(8)])
def test_a_record_that_cannot_be_is_damage(record: bytes) -> None:
    with pytest.raises(DamagedStateError):
        replay([*snapshot([PLAIN]), record])


def test_a_ledger_without_a_record_is_in_limbo() -> None:
    assert with_limbo({LedgerId(1): PLAIN}, [LedgerId(1), LedgerId(7)]) == [
        PLAIN,
        ServedLedger(7, b"", fenced=True, limbo=True),
    ]


def test_a_key_that_is_said_again_takes_no_fence_back() -> None:
    records = [*snapshot([ServedLedger(1, KEY, fenced=True, lac_blob=b"blob")]), ledger_record(PLAIN)]
    assert replay(records) == {1: ServedLedger(1, KEY, fenced=True, lac_blob=b"blob")}


def test_when_blocks_of_nobody_are_lost_every_ledger_is_in_limbo() -> None:
    assert all_in_limbo({LedgerId(1): PLAIN}) == {1: ServedLedger(1, KEY, fenced=True, limbo=True)}
