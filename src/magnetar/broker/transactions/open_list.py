"""Open transactions of all coordinators: this broker's from memory, other brokers' from their headers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.metadata import keys

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

LISTED_MAX: Final = 10_000
"""Most headers of a coordinator of another broker that are read for a list, those that began first first."""
_YOUNG_MAX: Final = 200
"""Headers in a row that are too young, after which no older one is looked for: numbers are given out in the
order of time, but for some of a coordinator that has changed its broker."""


Coordinators = Mapping[int, Coordinator]
"""Those that this broker has read, by number: `Transactions.coordinators`."""


def here(broker: BrokerPort, coordinators: Coordinators, number: int) -> Coordinator | None:
    """The coordinator, if this broker serves it; None: its headers tell."""
    owners = broker.owners
    if owners is not None and not owners.has(ASSIGN.with_partition(number)):
        return None
    return coordinators.get(number)


async def open_for(
    broker: BrokerPort, coordinators: Coordinators, numbers: Iterable[int], least_ms: int
) -> list[Transaction]:
    """Transactions of these coordinators that have been open for so many milliseconds, the oldest first.

    Damaged headers are left out: the broker of their coordinator reports them. Raises MetadataError.
    """
    now_ms, found = broker.clock.monotonic_ms(), list[Transaction]()
    for number in numbers:
        coordinator = here(broker, coordinators, number)
        if coordinator is not None:
            found += [txn for txn in coordinator.open_ones() if txn.age_ms(now_ms) >= least_ms]
        elif broker.owners is not None:
            found += [txn async for txn in _kept(broker, number, least_ms)]
    found.sort(key=lambda txn: txn.age_ms(now_ms), reverse=True)
    return found


async def _kept(broker: BrokerPort, number: int, least_ms: int) -> AsyncIterator[Transaction]:
    """The same of one coordinator, as its headers say."""
    wall_ms, now_ms = broker.clock.now_ms(), broker.clock.monotonic_ms()
    read = young = 0
    async for sequence, value in KeptTransactions(broker.store).headers(number):
        txn = Transaction(TxnId(number, sequence), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        read += 1
        try:
            txn.read(value.data, value.stat.version)
        except InvalidHeaderError:
            continue  # its coordinator's broker says so
        txn.deadline_ms = now_ms + txn.started_ms + txn.ttl_ms - wall_ms
        if txn.closing:
            txn.ending = TxnState.COMMITTED
        young = young + 1 if wall_ms - txn.started_ms < least_ms else 0
        if txn.state is TxnState.OPEN and not young:
            yield txn
        if young > _YOUNG_MAX or read >= LISTED_MAX:
            return


async def begun_elsewhere(broker: BrokerPort, number: int) -> tuple[int, int]:
    """A number that no transaction of another broker's coordinator exceeds, -1 before the first one; and how
    many of its transactions are not over. Raises MetadataError."""
    reserved, _ = await KeptTransactions(broker.store).reserved(number)
    return reserved - 1, len(await broker.store.children(keys.transaction_headers(number)))
