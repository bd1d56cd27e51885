"""What a bookie remembers of ledgers besides their entries: master keys, fences, explicit LACs. Sync, no I/O.

They are records of a ledger of the bookie's own, which has a negative id, lies in the same log and becomes
durable with it. Each start writes a new one, which begins with everything that is known; the old one goes
when that is durable.

    SNAPSHOT  u8 = 0 | count u32                   of the records that follow and belong together
    LEDGER    u8 = 1 | ledgerId i64 | flags u8 | master key
    FENCE     u8 = 2 | ledgerId i64
    LAC       u8 = 3 | ledgerId i64 | sealed last add confirmed
    GONE      u8 = 4 | ledgerId i64
    UNSURE    u8 = 5 | i64 = -1                    there may have been ledgers that no record names

All integers are big-endian. Bit 0 of the flags: the ledger is fenced; bit 1: it is in limbo.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.served import ServedLedger

FIRST_STATES_ID: Final = LedgerId(-1_000)
"""Ledger of the first records; each start uses the next lower id."""

_SNAPSHOT, _LEDGER, _FENCE, _LAC, _GONE, _UNSURE = range(6)
_COUNT: Final = struct.Struct(">BI")
_HEAD: Final = struct.Struct(">Bq")
_LEDGER_HEAD: Final = struct.Struct(">BqB")
_FENCED: Final = 1
_LIMBO: Final = 2


class DamagedStateError(StorageError):
    """A record that this version does not write."""


def ledger_record(ledger: ServedLedger) -> bytes:
    """A ledger that was not known before."""
    flags = (_FENCED if ledger.fenced else 0) | (_LIMBO if ledger.limbo else 0)
    return _LEDGER_HEAD.pack(_LEDGER, ledger.ledger_id, flags) + ledger.master_key


def fence_record(ledger_id: LedgerId) -> bytes:
    """The ledger is fenced."""
    return _HEAD.pack(_FENCE, ledger_id)


def lac_record(ledger_id: LedgerId, blob: bytes) -> bytes:
    """The ledger's explicit last add confirmed."""
    return _HEAD.pack(_LAC, ledger_id) + blob


def gone_record(ledger_id: LedgerId) -> bytes:
    """The ledger was deleted."""
    return _HEAD.pack(_GONE, ledger_id)


def snapshot(ledgers: Iterable[ServedLedger], *, knows_all: bool = True) -> list[bytes]:
    """The first records of a ledger of states.

    `knows_all`: whether the bookie certainly never had other ledgers.
    """
    records: list[bytes] = [] if knows_all else [_HEAD.pack(_UNSURE, -1)]
    for ledger in ledgers:
        records.append(ledger_record(ledger))
        if ledger.lac_blob is not None:
            records.append(lac_record(ledger.ledger_id, ledger.lac_blob))
    return [_COUNT.pack(_SNAPSHOT, len(records)), *records]


def is_complete(records: Sequence[bytes]) -> bool:
    """Whether a ledger of states holds the whole snapshot that it begins with."""
    if not records or len(records[0]) != _COUNT.size:
        return False
    kind, count = _COUNT.unpack(records[0])
    return bool(kind == _SNAPSHOT and len(records) > count)


def knows_all(records: Iterable[bytes]) -> bool:
    """Whether the bookie certainly never had other ledgers than those in the records."""
    return all(record[0] != _UNSURE for record in records)


def replay(records: Iterable[bytes]) -> dict[LedgerId, ServedLedger]:
    """The state after the records of one ledger of states. Raises DamagedStateError."""
    known: dict[LedgerId, ServedLedger] = {}
    for record in records:
        kind = record[0]
        if kind in (_SNAPSHOT, _UNSURE):
            continue
        if kind == _LEDGER:
            _, ledger_id, flags = _LEDGER_HEAD.unpack_from(record)
            # Recorded again after a full disk: the durable state stays.
            before = known.get(ledger_id)
            known[ledger_id] = ServedLedger(
                ledger_id,
                record[_LEDGER_HEAD.size :],
                flags & _FENCED != 0 or (before is not None and before.fenced),
                None if before is None else before.lac_blob,
                flags & _LIMBO != 0 or (before is not None and before.limbo),
            )
            continue
        ledger_id = _HEAD.unpack_from(record)[1]
        if kind == _GONE:
            known.pop(ledger_id, None)
        elif kind in (_FENCE, _LAC) and ledger_id in known:
            ledger = known[ledger_id]
            known[ledger_id] = (
                replace(ledger, fenced=True)
                if kind == _FENCE
                else replace(ledger, lac_blob=record[_HEAD.size :])
            )
        else:
            raise DamagedStateError(f"record of kind {kind} for ledger {ledger_id}")
    return known


def all_in_limbo(known: Mapping[LedgerId, ServedLedger]) -> dict[LedgerId, ServedLedger]:
    """The same ledgers in limbo, when their other records are not known."""
    return {ledger_id: replace(ledger, fenced=True, limbo=True) for ledger_id, ledger in known.items()}


def with_limbo(known: Mapping[LedgerId, ServedLedger], held: Iterable[LedgerId]) -> list[ServedLedger]:
    """Adds the ledgers with entries but without a record: their fences and keys were lost."""
    lost = [
        ServedLedger(ledger_id, b"", fenced=True, limbo=True) for ledger_id in held if ledger_id not in known
    ]
    return [*known.values(), *lost]
