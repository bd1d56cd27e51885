"""The records of transactions in the metadata store: their paths and values."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.outcomes import PAGE_BYTES
from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.cursors.entry_set_codec import MalformedAckedError, decode, encode
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError, number_of
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, MetadataStore, NotFoundError, Put, Stat
from magnetar.runtime.tasks import gathered

TOGETHER: Final = 100
"""Values that are read or written at once."""


class KeptTransactions:
    """Reads and writes it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    # -- coordinators ------------------------------------------------------------------------------

    async def coordinators(self) -> list[int]:
        """Coordinators that have begun a transaction."""
        return sorted(map(int, await self._store.children(keys.TRANSACTION_COORDINATORS)))

    async def reserved(self, number: int) -> tuple[int, int]:
        """Bound below which transaction numbers are assigned, and the value's version."""
        path = keys.transaction_coordinator(number)
        value = await self._store.get(path)
        return (0, MUST_NOT_EXIST) if value is None else (number_of(path, value.data), value.stat.version)

    async def reserve(self, number: int, upto: int, version: int) -> int:
        """Reserves numbers below `upto`, durably; returns the value's version. Raises BadVersionError when
        another process coordinates."""
        path = keys.transaction_coordinator(number)
        return (await self._store.put(path, str(upto).encode(), expected_version=version)).version

    # -- headers -----------------------------------------------------------------------------------

    async def headers(self, number: int) -> AsyncIterator[tuple[int, bytes, int]]:
        """Number, header and version of a coordinator's transactions, ascending."""
        path = keys.transaction_headers(number)
        names = sorted(map(int, await self._store.children(path)))
        for start in range(0, len(names), TOGETHER):
            part = names[start : start + TOGETHER]
            values = await gathered(self._store.get(f"{path}/{name}") for name in part)
            for name, value in zip(part, values, strict=True):
                if value is not None:
                    yield name, value.data, value.stat.version

    async def header(self, txn_id: TxnId) -> tuple[bytes, int] | None:
        value = await self._store.get(_header(txn_id))
        return None if value is None else (value.data, value.stat.version)

    async def write(self, txn: Transaction, header: bytes) -> Stat:
        """The commit point, where the header decides. Raises BadVersionError, MetadataError."""
        version = MUST_NOT_EXIST if txn.version is None else txn.version
        return await self._store.put(_header(txn.id), header, expected_version=version)

    async def end(
        self, coordinator: Coordinator, txns: Iterable[Transaction], pages: Iterable[int], *, again: bool
    ) -> None:
        """Replaces headers by outcomes, atomically. `again`: an earlier attempt failed, and may have taken
        effect all the same."""
        path = keys.transaction_outcomes(coordinator.number)
        if again:
            txns = [txn for txn in txns if await self.header(txn.id) is not None]
        operations: list[Put | Delete] = [
            Put(f"{path}/{number}", coordinator.outcomes.page(number)) for number in sorted(pages)
        ]
        operations += [Delete(_header(txn.id)) for txn in txns]
        await self._store.transact(operations)

    # -- outcomes ----------------------------------------------------------------------------------

    async def outcomes(self, number: int) -> AsyncIterator[tuple[int, bytes]]:
        """The pages of a coordinator."""
        path = keys.transaction_outcomes(number)
        for name in await self._store.children(path):
            value = await self._store.get(f"{path}/{name}")
            if value is not None and len(value.data) == PAGE_BYTES:
                yield int(name), value.data

    async def forget_outcomes(self, number: int, page: int) -> None:
        await _delete(self._store, f"{keys.transaction_outcomes(number)}/{page}")

    # -- hidden entries ----------------------------------------------------------------------------

    async def any_hidden(self) -> bool:
        """Whether any topic ever had entries of aborted transactions."""
        return bool(await self._store.children(keys.HIDDEN_ENTRIES))

    async def hidden(self, log_name: str) -> dict[LedgerId, EntrySet]:
        """Entries of aborted transactions, by ledger."""
        path = keys.hidden_entries(log_name)
        found: dict[LedgerId, EntrySet] = {}
        for name in await self._store.children(path):
            value = await self._store.get(f"{path}/{name}")
            if value is not None:
                try:
                    found.update(decode(value.data))
                except MalformedAckedError as error:
                    raise DamagedDocumentError(f"{path}/{name}", str(error)) from error
        return found

    async def hide(self, log_name: str, hidden: Mapping[LedgerId, EntrySet]) -> None:
        """Durably: these are all of these ledgers."""
        path = keys.hidden_entries(log_name)
        await self._store.transact(
            [Put(f"{path}/{each}", encode({each: entries})) for each, entries in hidden.items()]
        )

    async def forget_hidden(self, log_name: str, ledger_ids: Iterable[LedgerId]) -> None:
        """These ledgers were deleted."""
        for ledger_id in ledger_ids:
            await _delete(self._store, f"{keys.hidden_entries(log_name)}/{ledger_id}")

    async def forget_topic(self, log_name: str) -> None:
        """The topic was deleted."""
        await self._store.delete_recursive(keys.hidden_entries(log_name))


def _header(txn_id: TxnId) -> str:
    return f"{keys.transaction_headers(txn_id.coordinator)}/{txn_id.sequence}"


async def _delete(store: MetadataStore, path: str) -> None:
    with contextlib.suppress(NotFoundError):  # it is deleted, as requested
        await store.delete(path)
