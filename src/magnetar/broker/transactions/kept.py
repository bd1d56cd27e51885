"""The records of transactions in the metadata store: their paths and values."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.base.recent import Recent
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.cursors.entry_set_codec import MalformedAckedError, decode, encode
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError, number_of
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    OPERATIONS_MAX,
    BadVersionError,
    Delete,
    MetadataStore,
    NotFoundError,
    Put,
    Stat,
    Value,
)
from magnetar.runtime.tasks import gathered
from magnetar.wire.checksum import crc32c

_T = TypeVar("_T")

_VERSIONS_KEPT: Final = 100_000
"""A value whose version is not kept is read when it is to be written."""

TOGETHER: Final = 100
"""Values that are read or written at once."""

_ENDED_TOGETHER: Final = OPERATIONS_MAX - 8


class KeptTransactions:
    """Reads and writes it."""

    ended_together = _ENDED_TOGETHER
    """Headers that become outcomes at once, mostly in one transaction of the store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._versions: Recent[str, int] = Recent(_VERSIONS_KEPT)
        """Of values of hidden entries, as they were read or written last; by path."""

    # -- coordinators ------------------------------------------------------------------------------

    async def coordinators(self) -> list[int]:
        """Coordinators that have begun a transaction. Raises MetadataError for those of several brokers that
        have not ended: nothing here would know which topics still have to do something for them."""
        if await self._store.exists(keys.TRANSACTIONS_SHARED):
            for number in await self._store.children(keys.TRANSACTION_HEADERS):
                if await self._store.children(keys.transaction_headers(int(number))):
                    raise MetadataError(
                        "transactions of several brokers are open: start brokers until they have ended"
                    )
            await self._store.delete(keys.TRANSACTIONS_SHARED)
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

    async def headers(self, number: int) -> AsyncIterator[tuple[int, Value]]:
        """Numbers and headers of a coordinator's transactions, ascending."""
        path = keys.transaction_headers(number)
        names = sorted(map(int, await self._store.children(path)))
        for start in range(0, len(names), TOGETHER):
            part = names[start : start + TOGETHER]
            values = await gathered(self._store.get(f"{path}/{name}") for name in part)
            for name, value in zip(part, values, strict=True):
                if value is not None:
                    yield name, value

    async def header(self, txn_id: TxnId) -> tuple[bytes, int] | None:
        value = await self._store.get(header_path(txn_id))
        return None if value is None else (value.data, value.stat.version)

    async def save(self, txn: Transaction) -> int:
        """Writes its header as it is to be: the commit point, where that decides. The header's version.
        Raises BadVersionError, MetadataError."""
        return await self.write(txn, txn.header())

    async def write(self, txn: Transaction, header: bytes) -> int:
        """The same with this header."""
        version = MUST_NOT_EXIST if txn.version is None else txn.version
        return (await self._store.put(header_path(txn.id), header, expected_version=version)).version

    async def write_with_parts(self, txn: Transaction, header: bytes, log_names: Iterable[str]) -> int:
        """The same, and with it an empty part for each of these logs, which have none: all or nothing. The
        header's version. Raises what `write` raises."""
        version = MUST_NOT_EXIST if txn.version is None else txn.version
        operations = [Put(header_path(txn.id), header, version)]
        operations += [Put(part_path(each, txn.id), b"{}", MUST_NOT_EXIST) for each in log_names]
        stat, *_ = await self._store.transact(operations)
        assert stat is not None, "a put"
        return stat.version

    async def end(
        self, coordinator: Coordinator, txns: Iterable[Transaction], pages: Iterable[int], *, again: bool
    ) -> None:
        """Replaces headers by outcomes: each outcome is durable before its header goes. `again`: an earlier
        attempt failed, and may have taken effect all the same."""
        if again:
            txns = [txn for txn in txns if await self.header(txn.id) is not None]
        await self._write_pages(coordinator, pages, [Delete(header_path(txn.id)) for txn in txns])

    async def _write_pages(
        self, coordinator: Coordinator, pages: Iterable[int], deletions: Iterable[Delete] = ()
    ) -> None:
        """Outcomes as they are known now, and these deletions behind them."""
        path = keys.transaction_outcomes(coordinator.number)
        # A damaged page is overwritten only after a copy of it is durable, or with it: the outcomes in it may
        # still be readable by hand.
        damaged = [(page, coordinator.outcomes.damaged.get(page)) for page in sorted(pages)]
        operations: list[Put | Delete] = [
            Put(_aside(coordinator.number, page, data), data) for page, data in damaged if data is not None
        ]
        for number in sorted(pages):
            page, data = f"{path}/{number}", coordinator.outcomes.page(number)
            operations.append(Put(page, data, self._page_version(coordinator, page)))
        operations += deletions
        for part in parts_of(operations, OPERATIONS_MAX):
            self._wrote_pages(await self._store.transact(part))
        coordinator.outcomes.put_aside(pages)

    def _page_version(self, coordinator: Coordinator, path: str) -> int | None:
        """The version that a page of outcomes is to have when it is written; None: any."""
        return ANY_VERSION

    def _wrote_pages(self, stats: Iterable[Stat | None]) -> None:
        """These values have these versions now."""

    def check(self) -> None:
        """Asserts what must always hold."""

    # -- outcomes ----------------------------------------------------------------------------------

    async def outcomes(self, number: int) -> AsyncIterator[tuple[int, bytes]]:
        """The pages of a coordinator, of any size."""
        path = keys.transaction_outcomes(number)
        for name in await self._store.children(path):
            value = await self._store.get(f"{path}/{name}")
            if value is not None:
                self._wrote_pages((value.stat,))
                yield int(name), value.data

    async def outcomes_aside(self, number: int) -> dict[int, str]:
        """Paths of the damaged pages of a coordinator that were put aside, by page."""
        folder = keys.damaged_outcomes(number)
        return {
            int(name.partition("-")[0]): f"{folder}/{name}" for name in await self._store.children(folder)
        }

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
            found.update(await self._hidden_in(f"{path}/{name}"))
        return found

    async def _hidden_in(self, path: str) -> dict[LedgerId, EntrySet]:
        value = await self._store.get(path)
        if value is None:
            self._versions.forget(path)
            return {}
        self._versions.put(path, value.stat.version)
        try:
            return decode(value.data)
        except MalformedAckedError as error:
            raise DamagedDocumentError(path, str(error)) from error

    async def hide(self, log_name: str, hidden: Mapping[LedgerId, EntrySet]) -> None:
        """Durably: these entries of these ledgers, beside those that another process hid meanwhile."""
        folder = keys.hidden_entries(log_name)
        sets = [(f"{folder}/{each}", {each: entries}) for each, entries in hidden.items()]
        for part in parts_of(sets, OPERATIONS_MAX):
            await self._hide(dict(part))

    async def _hide(self, sets: dict[str, dict[LedgerId, EntrySet]]) -> None:
        """The same for the values at these paths."""
        while True:
            tried = {path: self._versions.get(path) for path in sets}
            puts = [
                Put(path, encode(entries), MUST_NOT_EXIST if version is None else version)
                for (path, entries), version in zip(sets.items(), tried.values(), strict=True)
            ]
            try:
                stats = await self._store.transact(puts)
                break
            except BadVersionError:
                await self._store.sync()
                for path, entries in sets.items():
                    sets[path] = _together(entries, await self._hidden_in(path))
                if tried == {path: self._versions.get(path) for path in sets}:
                    # Nothing that can be read is there: to try again would not end.
                    raise
        for put, stat in zip(puts, stats, strict=True):
            assert stat is not None, "each is a put"
            self._versions.put(put.path, stat.version)

    async def forget_hidden(self, log_name: str, ledger_ids: Iterable[LedgerId]) -> None:
        """These ledgers were deleted."""
        for ledger_id in ledger_ids:
            path = f"{keys.hidden_entries(log_name)}/{ledger_id}"
            self._versions.forget(path)
            await _delete(self._store, path)

    async def forget_topic(self, log_name: str) -> None:
        """The topic was deleted."""
        await self._store.delete_recursive(keys.hidden_entries(log_name))


def _together(
    some: Mapping[LedgerId, EntrySet], others: Mapping[LedgerId, EntrySet]
) -> dict[LedgerId, EntrySet]:
    """The entries of both."""
    union: dict[LedgerId, EntrySet] = {}
    for each in (some, others):
        for ledger_id, entries in each.items():
            into = union.setdefault(ledger_id, EntrySet())
            for number, bits in entries.chunks.items():
                into.add_chunk(number, bits)
    return union


def parts_of(whole: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """In order, each of up to `size`."""
    return (whole[start : start + size] for start in range(0, len(whole), size))


def part_path(log_name: str, txn_id: TxnId) -> str:
    """Where a log's part in a transaction of several brokers is kept."""
    return f"{keys.transaction_parts(log_name)}/{txn_id.coordinator}-{txn_id.sequence}"


def header_path(txn_id: TxnId) -> str:
    """Where a transaction's header is kept."""
    return f"{keys.transaction_headers(txn_id.coordinator)}/{txn_id.sequence}"


def _aside(coordinator: int, page: int, data: bytes) -> str:
    """Named by its content: putting it there again changes nothing, and another one does not replace it."""
    return f"{keys.damaged_outcomes(coordinator)}/{page}-{crc32c(data):08x}"


async def _delete(store: MetadataStore, path: str) -> None:
    with contextlib.suppress(NotFoundError):  # it is deleted, as requested
        await store.delete(path)
