"""Adds that wait while a point in time is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.client.pool import BookiePool
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status


class _Connection:
    """Notes what is sent."""

    is_usable = True

    def __init__(self, sent: list[tuple[int, int]]) -> None:
        self._sent = sent

    def send_adds(self, run: AddRun, sink: object) -> None:
        self._sent.append((run.ledger_id, run.entry_ids[0]))

    def forget(self, ledger_id: int, sink: object) -> None:
        pass

    def close(self) -> None:
        pass


class _Sink:
    def added(self, entry_ids: Sequence[int], status: Status) -> None:
        raise AssertionError("nothing was answered")


async def _nowhere(_: str) -> tuple[str, int] | None:
    return None


def add(ledger_id: int, entry_id: int) -> AddRun:
    run = AddRun(ledger_id, b"key")
    run.entry_ids.append(entry_id)
    run.entries.append(b"entry")
    return run


def test_adds_wait_and_are_sent_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        sent: list[tuple[int, int]] = []
        pool = BookiePool(_nowhere, LedgerClientOptions())
        first, second = _Sink(), _Sink()
        for ledger_id in (1, 2):
            pool._channel("b1", ledger_id, recovery=False)._connection = cast(Any, _Connection(sent))
        pool.send_adds("b1", add(1, 0), first)
        with pool.holding_adds():
            pool.send_adds("b1", add(1, 1), first)
            pool.send_adds("b1", add(2, 0), second)
            pool.send_adds("b1", add(1, 2), first)
            for _ in range(5):
                await asyncio.sleep(0)
            assert sent == [(1, 0)]
            # Its writer has ended: what would be sent must not be told.
            pool.forget("b1", 2, second, recovery=False)
        assert sent == [(1, 0), (1, 1), (1, 2)]
        pool.send_adds("b1", add(1, 3), first)
        assert sent[-1] == (1, 3)
        await pool.close()

    asyncio.run(scenario())


def test_adds_go_on_after_a_failure() -> None:
    async def scenario() -> None:
        sent: list[tuple[int, int]] = []
        pool = BookiePool(_nowhere, LedgerClientOptions())
        pool._channel("b1", 1, recovery=False)._connection = cast(Any, _Connection(sent))

        def fail() -> None:
            with pool.holding_adds():
                pool.send_adds("b1", add(1, 0), _Sink())
                raise TimeoutError

        with pytest.raises(TimeoutError):
            fail()
        assert sent == [(1, 0)]
        await pool.close()

    asyncio.run(scenario())
