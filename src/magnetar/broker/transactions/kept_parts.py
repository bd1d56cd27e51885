"""The records of transactions of several brokers: parts of topics, and wishes to abort."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final

from magnetar.base.ids import EARLIEST
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import TOGETHER, KeptTransactions, part_path
from magnetar.broker.transactions.kept_log import any_left
from magnetar.managedlog.log_metadata import log_path
from magnetar.metadata import keys
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Check,
    MetadataStore,
    NotFoundError,
    Put,
    Stat,
    Value,
)
from magnetar.runtime.tasks import gathered
from magnetar.wire.checksum import crc32c

LOST: Final = b'{"p":[%d,%d],"c":0}' % EARLIEST
"""A part that no owner has claimed, of a topic that lost something and may have messages of the transaction
anywhere: see `mirror.py`."""
_LOG_NAME_PARTS: Final = 4
"""Tenant, namespace, domain and topic."""


def part_at(path: str) -> tuple[str, TxnId] | None:
    """Name of the log and transaction of a part; None: it is another value's path."""
    log_name, _, name = path.removeprefix(f"{keys.TRANSACTION_PARTS}/").rpartition("/")
    id_ = _id_of(*name.split("-")) if name.count("-") == 1 else None
    return None if id_ is None or log_name.count("/") != 3 else (log_name, id_)


def header_at(path: str) -> TxnId | None:
    """The transaction of a header; None: it is another value's path."""
    parts = path.removeprefix(f"{keys.TRANSACTION_HEADERS}/").split("/")
    return _id_of(*parts) if len(parts) == 2 else None


def wish_at(path: str) -> TxnId | None:
    """The transaction of a wish; None: it is another value's path."""
    parts = path.removeprefix(f"{keys.TRANSACTION_WISHES}/").split("/")
    return _id_of(*parts) if len(parts) == 2 else None


def _id_of(coordinator: str, sequence: str) -> TxnId | None:
    if not (coordinator.isdecimal() and sequence.isdecimal()):
        return None
    return TxnId(int(coordinator), int(sequence))


class KeptParts(KeptTransactions):
    """Reads and writes them, and what one broker alone keeps too."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self._pages: dict[str, int] = {}
        """Versions of pages of outcomes, as they were read or written last, by path."""
        self._generations: dict[int, int] = {}
        """How often this process has read each coordinator."""

    async def share(self, *, mark: bool) -> bool:
        """Marks the transactions as those of several brokers, if asked to. False: transactions of one broker
        are there, which have no parts."""
        if not await self.shared():
            if await any_left(self._store):
                return False
            for number in await self._store.children(keys.TRANSACTION_HEADERS):
                if await self._store.children(keys.transaction_headers(int(number))):
                    return False
            if mark:
                with contextlib.suppress(BadVersionError):  # another broker was first
                    await self._store.put(keys.TRANSACTIONS_SHARED, b"", expected_version=MUST_NOT_EXIST)
        return True

    async def shared(self) -> bool:
        """Whether any broker ever marked them so."""
        return await self._store.exists(keys.TRANSACTIONS_SHARED)

    async def sync(self) -> None:
        """What is read from now on has all that any broker had answered: see `MetadataStore.sync`."""
        await self._store.sync()

    async def latest_header(self, id_: TxnId) -> tuple[bytes, int] | None:
        """As `header`; where there is none, no server of the store that is behind says so."""
        found = await self.header(id_)
        if found is None:
            await self.sync()
            found = await self.header(id_)
        return found

    # -- parts -------------------------------------------------------------------------------------

    async def parts(self, log_name: str) -> AsyncIterator[tuple[TxnId, Value]]:
        """The parts of a log."""
        path = keys.transaction_parts(log_name)
        names = await self._store.children(path)
        for start in range(0, len(names), TOGETHER):
            some = names[start : start + TOGETHER]
            values = await gathered(self._store.get(f"{path}/{name}") for name in some)
            for name, value in zip(some, values, strict=True):
                found = part_at(f"{path}/{name}")
                if value is not None and found is not None:
                    yield found[1], value

    async def version_of(self, log_name: str) -> int | None:
        """Version of a log's value; None: there is no such log."""
        value = await self._store.get(log_path(log_name))
        return None if value is None else value.stat.version

    async def part(self, log_name: str, id_: TxnId) -> Value | None:
        return await self._store.get(part_path(log_name, id_))

    async def write_part(
        self, log_name: str, id_: TxnId, data: bytes, version: int, condition: Check | None = None
    ) -> int:
        """Where the condition holds. Returns the new version. Raises BadVersionError, also where it is gone;
        of which path tells what did not hold."""
        if condition is None:
            return (await self._store.put(part_path(log_name, id_), data, expected_version=version)).version
        put = Put(part_path(log_name, id_), data, version)
        _, stat = await self._store.transact([condition, put])
        assert stat is not None, "a put"
        return stat.version

    async def drop_part(self, log_name: str, id_: TxnId, version: int) -> None:
        """Raises BadVersionError when it was written meanwhile."""
        with contextlib.suppress(NotFoundError):  # it is gone, as requested
            await self._store.delete(part_path(log_name, id_), expected_version=version)

    async def parts_of(self, id_: TxnId) -> AsyncIterator[tuple[str, Value]]:
        """The logs that have a part of a transaction, and it. Looks at each topic that takes part in any."""
        logs = [""]
        for _ in range(_LOG_NAME_PARTS):
            logs = [
                f"{above}{name}/"
                for above in logs
                for name in await self._store.children(f"{keys.TRANSACTION_PARTS}/{above}".rstrip("/"))
            ]
        for log_name in (each.rstrip("/") for each in logs):
            value = await self.part(log_name, id_)
            if value is not None:
                yield log_name, value

    async def lose_part(self, log_name: str, id_: TxnId, value: Value) -> str:
        """A damaged part becomes one that says that something was lost; the path to which its bytes go with
        the same write. Raises BadVersionError."""
        copy = f"{keys.damaged_parts(log_name)}/{id_.coordinator}-{id_.sequence}-{crc32c(value.data):08x}"
        path = part_path(log_name, id_)
        await self._store.transact([Put(copy, value.data), Put(path, LOST, value.stat.version)])
        return copy

    async def forget_topic(self, log_name: str) -> None:
        await super().forget_topic(log_name)
        await self._store.delete_recursive(keys.transaction_parts(log_name))
        await self._store.delete_recursive(keys.damaged_parts(log_name))

    # -- wishes ------------------------------------------------------------------------------------

    async def wish(self, id_: TxnId, reason: str) -> None:
        """The broker of a topic wants it to be aborted."""
        path = f"{keys.TRANSACTION_WISHES}/{id_.coordinator}/{id_.sequence}"
        await self._store.put(path, reason.encode())

    async def wishes(self, number: int) -> list[TxnId]:
        """Those that a coordinator has not granted yet."""
        names = await self._store.children(f"{keys.TRANSACTION_WISHES}/{number}")
        return [TxnId(number, int(name)) for name in names if name.isdecimal()]

    async def take_wish(self, id_: TxnId) -> str:
        """The reason, which is deleted."""
        path = f"{keys.TRANSACTION_WISHES}/{id_.coordinator}/{id_.sequence}"
        value = await self._store.get(path)
        with contextlib.suppress(NotFoundError):  # another process that serves the coordinator took it too
            await self._store.delete(path)
        return "" if value is None else value.data.decode(errors="replace")

    # -- outcomes ----------------------------------------------------------------------------------

    async def overtaken(self, number: int, page: int) -> bool:
        """Whether another process wrote this page of outcomes since this one read or wrote it."""
        path = f"{keys.transaction_outcomes(number)}/{page}"
        value = await self._store.get(path)
        return value is not None and value.stat.version != self._pages.get(path)

    def read_anew(self, number: int) -> int:
        """A coordinator is about to be read: what is there of an earlier reading writes no outcomes any more.
        The number of the reading."""
        self._generations[number] = self._generations.get(number, 0) + 1
        return self._generations[number]

    async def begun(self, number: int) -> list[int]:
        """Numbers of a coordinator's transactions that have a header."""
        return sorted(map(int, await self._store.children(keys.transaction_headers(number))))

    def _page_version(self, coordinator: Coordinator, path: str) -> int | None:
        if coordinator.generation != self._generations.get(coordinator.number):
            raise BadVersionError(path, None, None)
        return self._pages.get(path, MUST_NOT_EXIST)

    def _wrote_pages(self, stats: Iterable[Stat | None]) -> None:
        for stat in stats:
            if stat is not None:
                self._pages[stat.path] = stat.version
