"""Requests that only version 3 of the protocol has: forces, explicit last adds confirmed, reads that wait."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.ids import LedgerId
from magnetar.ledger.client.connection import BookieChannel
from magnetar.ledger.client.pool import BookiePool
from magnetar.wire.bookkeeper.requests import LAST_ENTRY, ForceLedger, Read, ReadLac, WriteLac
from magnetar.wire.bookkeeper.responses import Forced, LacRead, LacWritten, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status


def force(pool: BookiePool, bookie: str, ledger_id: LedgerId, answered: Callable[[Status], None]) -> None:
    """Makes durable what the bookie acknowledged before. No answer counts as IO_ERROR."""

    def done(response: Response | None) -> None:
        answered(response.status if isinstance(response, Forced) else Status.IO_ERROR)

    pool.ask(bookie, ledger_id, lambda connection: ForceLedger(ledger_id, connection.take_txn_id()), done)


def write_lac(
    pool: BookiePool,
    bookie: str,
    ledger_id: LedgerId,
    last_confirmed: int,
    *,
    master_key: bytes,
    blob: bytes,
    answered: Callable[[Status], None],
) -> None:
    """Has the bookie store the last add confirmed; `blob` is the same, sealed.

    No answer counts as IO_ERROR.
    """

    def done(response: Response | None) -> None:
        answered(response.status if isinstance(response, LacWritten) else Status.IO_ERROR)

    def request(connection: BookieChannel) -> WriteLac:
        return WriteLac(ledger_id, last_confirmed, master_key, blob, connection.take_txn_id())

    pool.ask(bookie, ledger_id, request, done)


def read_lac(
    pool: BookiePool,
    bookie: str,
    ledger_id: LedgerId,
    answered: Callable[[Status, bytes | None, bytes | None], None],
) -> None:
    """The last entry of the bookie, and the sealed last add confirmed that it stores."""

    def done(response: Response | None) -> None:
        if isinstance(response, LacRead):
            answered(response.status, response.last_entry, response.blob)
        else:
            answered(Status.IO_ERROR, None, None)

    pool.ask(bookie, ledger_id, lambda connection: ReadLac(ledger_id, connection.take_txn_id()), done)


def wait_for_more(
    pool: BookiePool,
    bookie: str,
    ledger_id: LedgerId,
    previous: int,
    wait_s: float,
    answered: Callable[[Status, int | None, bytes | None], None],
) -> None:
    """Waits at the bookie until more than `previous` is confirmed; returns the last add confirmed, and the
    next entry if the bookie has it."""

    def request(connection: BookieChannel) -> Read:
        return Read(
            ledger_id,
            LAST_ENTRY,
            txn_id=connection.take_txn_id(),
            previous_lac=previous,
            timeout_ms=int(1_000 * wait_s),
            piggyback=True,
        )

    def done(response: Response | None) -> None:
        if isinstance(response, ReadDone):
            answered(response.status, response.lac_max, response.entry)
        else:
            answered(Status.IO_ERROR, None, None)

    pool.ask(bookie, ledger_id, request, done, wait_s=wait_s)
