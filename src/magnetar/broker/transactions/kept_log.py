"""The records of one broker's transactions: their headers are in a log, because each is short-lived.

Driver: `header_log.py` says what a record is and which are needed. All that touches the log is done by one
task, a group after the other, so that a record is written when the one before it is durable, or is known not
to be there. Each record is stored twice, in one transaction of the store: a damaged one has a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from itertools import pairwise
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.header_log import (
    BYTES_MAX,
    COMMITTED,
    OVER,
    HeaderLine,
    HeaderLog,
    decode,
    encode,
    fold,
)
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept import TOGETHER, KeptTransactions, header_path, parts_of
from magnetar.broker.transactions.transaction import Transaction
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    OPERATIONS_MAX,
    BadVersionError,
    Check,
    Delete,
    MetadataStore,
    NotFoundError,
    Operation,
    Put,
    Stat,
    Value,
)
from magnetar.runtime.tasks import gathered, yield_loop

_log = logging.getLogger("magnetar.broker.transactions")

Spawn = Callable[[Coroutine[object, object, object]], None]

GATHER_FROM: Final = 8
"""Lines of a record after which the next one gathers: many clients are at work."""
GATHER_TURNS: Final = 4
"""Turns of the event loop for which it does. Meanwhile answers lead to the next requests."""
_DELETED_FROM: Final = 16
"""Records that are not needed any more, from which on they are deleted: few writes for many."""
_ANY: Final = -2
"""Expected version of a line that replaces whatever is there."""
_ENDED_TOGETHER: Final = 1_024
_PUTS: Final = 3
"""Operations of the store that write a record."""
_COPY: Final = "-copy"
_LOST: Final = (
    "Whether transactions are committed is not known without it. Where no backup has it, the text `given up` "
    "in its place lets the broker start; messages of its transactions count as committed then"
)


class _Asked:
    """Lines that are to be durable, or the question how a transaction stands."""

    __slots__ = ("answer", "expected", "lines", "size_bytes")

    def __init__(
        self, answer: asyncio.Future[object], lines: Sequence[HeaderLine], expected: int | None
    ) -> None:
        self.answer = answer
        """For lines the number of their record; for a question a header with its version, or None."""
        self.lines = lines
        """Where it is a question, one without text."""
        self.expected = expected
        """Version that the header has, of which there is one line then; None: there is none."""
        self.size_bytes = sum(len(each.text) for each in lines)


class LoggedTransactions(KeptTransactions):
    """Reads and writes them. Versions of headers are numbers of records."""

    ended_together = _ENDED_TOGETHER

    def __init__(self, store: MetadataStore, spawn: Spawn) -> None:
        super().__init__(store)
        self._spawn = spawn
        self._known = HeaderLog()
        self._found: dict[int, list[tuple[int, Value]]] | None = None
        """What an earlier process left, by coordinator; None before it was read."""
        self._asked: deque[_Asked] = deque()
        self._at_work = False
        self.in_doubt = False
        """Whether the next record may be there."""
        self._renewing: frozenset[TxnId] = frozenset()
        """Transactions whose headers it writes anew."""
        self._wrote = False
        """Whether the record before it is of this process."""

    # -- start -------------------------------------------------------------------------------------

    async def headers(self, number: int) -> AsyncIterator[tuple[int, Value]]:
        """As an earlier process left them. Raises MetadataError, DamagedDocumentError."""
        if self._found is None:
            self._found = await self._read_all()
        for each in self._found.pop(number, []):
            yield each

    async def _read_all(self) -> dict[int, list[tuple[int, Value]]]:
        records: list[list[HeaderLine]] = []
        async for number, lines in records_of(self._store):
            if not records:
                self._known.next = number
            self._known.add(lines)
            records.append(lines)
        headers = fold(records)
        created_ms = await self._move_in(headers)
        found: dict[int, list[tuple[int, Value]]] = {}
        for txn_id in sorted(headers):
            version, made_ms = self._known.version(txn_id), created_ms.get(txn_id, 0)
            assert version is not None, "the log has it"
            stat = Stat(header_path(txn_id), version, made_ms, made_ms, False, False)
            found.setdefault(txn_id.coordinator, []).append((txn_id.sequence, Value(headers[txn_id], stat)))
        return found

    async def _move_in(self, headers: dict[TxnId, bytes]) -> dict[TxnId, int]:
        """Moves headers that are values of their own into the log, and into `headers`: of an earlier release,
        or restored by an operator. When they were made."""
        created_ms: dict[TxnId, int] = {}
        for coordinator in map(int, await self._store.children(keys.TRANSACTION_HEADERS)):
            own = [each async for each in KeptTransactions.headers(self, coordinator)]
            for part in parts_of(own, OPERATIONS_MAX - _PUTS):
                moved = [HeaderLine(TxnId(coordinator, sequence), value.data) for sequence, value in part]
                deletions = [Delete(header_path(each.txn_id)) for each in moved]
                await self._store.transact([*self._puts(moved), *deletions])
                self._known.add(moved)
                self._wrote = True
                headers.update(moved)
                for line, (_, value) in zip(moved, part, strict=True):
                    created_ms[line.txn_id] = value.stat.created_ms
        return created_ms

    # -- headers -----------------------------------------------------------------------------------

    async def header(self, txn_id: TxnId) -> tuple[bytes, int] | None:
        found = await self._ask([HeaderLine(txn_id, b"")], _ANY)
        assert found is None or isinstance(found, tuple)
        return found

    async def save(self, txn: Transaction) -> int:
        if txn.verdict is TxnState.COMMITTED and txn.saved == txn.revision - 1 and txn.version is not None:
            # Nothing else has changed since its header was written.
            return await self.write(txn, COMMITTED)
        return await self.write(txn, txn.header())

    async def write(self, txn: Transaction, header: bytes) -> int:
        number = await self._ask([HeaderLine(txn.id, header)], txn.version)
        assert isinstance(number, int)
        return number

    async def end(
        self, coordinator: Coordinator, txns: Iterable[Transaction], pages: Iterable[int], *, again: bool
    ) -> None:
        await self._write_pages(coordinator, pages)
        await self._ask([HeaderLine(txn.id, OVER) for txn in txns], _ANY)

    def check(self) -> None:
        self._known.check()

    # -- the one task that touches the log -----------------------------------------------------------

    def _ask(self, lines: Sequence[HeaderLine], expected: int | None) -> asyncio.Future[object]:
        answer = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(answer, lines, expected))
        if not self._at_work:
            self._at_work = True
            self._spawn(self._work())
        return answer

    async def _work(self) -> None:
        turns = 1
        try:
            while self._asked:
                for _ in range(turns):
                    await yield_loop()
                group = self._group()
                await self._answer(group)
                turns = GATHER_TURNS if len(group) >= GATHER_FROM else 1
                await self._tidy_up()
        finally:
            self._at_work = False
            # Only where the process ends: whether they would have been written is not known.
            while self._asked:
                self._asked.popleft().answer.cancel()

    def _group(self) -> list[_Asked]:
        """What is asked for next: as much as a record may have."""
        group = [self._asked.popleft()]
        size_bytes = group[0].size_bytes
        while self._asked and size_bytes + self._asked[0].size_bytes <= BYTES_MAX:
            group.append(self._asked.popleft())
            size_bytes += group[-1].size_bytes
        return group

    async def _answer(self, group: list[_Asked]) -> None:
        try:
            await self.settle_doubt()
            if not self._wrote:
                await self._check_last()
            taken = await self._taken(group)
            if taken:
                lines = [line for each in taken for line in each.lines]
                lines += (renewed := await self._renewed({each.txn_id for each in lines}))
                number = self._known.next
                self.in_doubt, self._renewing = True, frozenset(each.txn_id for each in renewed)
                await self._store.transact(self._puts(lines))
                self.in_doubt, self._wrote = False, True
                self._known.add(lines, self._renewing)
                for each in taken:
                    _give(each, number)
        except BaseException as error:
            for each in group:
                if not each.answer.done():
                    if isinstance(error, asyncio.CancelledError):
                        each.answer.cancel()
                    else:
                        each.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise

    async def _taken(self, group: list[_Asked]) -> list[_Asked]:
        """Those with lines that may be written. Questions are answered; where a header is not as expected,
        its writer is told."""
        taken: list[_Asked] = []
        begun = set[TxnId]()
        for each in group:
            first = each.lines[0] if each.lines else None
            if first is None:
                _give(each, self._known.next)
            elif not first.text:
                _give(each, await self._stored(first.txn_id))
            elif each.expected == _ANY:
                taken.append(each)
                begun.update(line.txn_id for line in each.lines)
            else:
                actual = self._known.version(first.txn_id)
                if actual != each.expected or first.txn_id in begun:
                    path = header_path(first.txn_id)
                    if not each.answer.done():
                        each.answer.set_exception(BadVersionError(path, each.expected, actual))
                    continue
                taken.append(each)
                begun.add(first.txn_id)
        return taken

    def _puts(self, lines: Sequence[HeaderLine]) -> list[Operation]:
        """The next record. That it must not be there decides between two processes; and that the one before
        it is there, which another process that went on long ago may have deleted."""
        number = self._known.next
        data, (path, copy) = encode(lines), _paths(number)
        before = [Check(_paths(number - 1)[0], 0)] if self._wrote else []
        return [*before, Put(path, data, MUST_NOT_EXIST), Put(copy, data)]

    async def settle_doubt(self) -> None:
        """A record was not answered, or another process wrote it: what is there counts."""
        while self.in_doubt:
            lines = await record_at(self._store, self._known.next)
            if lines is None:
                self.in_doubt = False
            else:
                self._known.add(lines, self._renewing)

    async def _check_last(self) -> None:
        """Before the first record of this process: another one may have written since the log was read.
        Raises BadVersionError where what it wrote is gone already."""
        *_, last = -1, *await numbers_of(self._store)
        self.in_doubt = True
        await self.settle_doubt()
        if last >= self._known.next:
            raise BadVersionError(_paths(self._known.next)[0], self._known.next, last + 1)

    async def _stored(self, txn_id: TxnId) -> tuple[bytes, int] | None:
        version = self._known.version(txn_id)
        if version is None:
            return None
        records = [await record_at(self._store, number) for number in self._known.places(txn_id)]
        header = fold(lines or [] for lines in records).get(txn_id)
        return None if header is None else (header, version)

    async def _renewed(self, changing: set[TxnId]) -> list[HeaderLine]:
        """Headers of the oldest record, where it keeps a log that is mostly not needed."""
        lines: list[HeaderLine] = []
        for txn_id in self._known.to_renew():
            if txn_id not in changing:
                stored = await self._stored(txn_id)
                if stored is not None:
                    lines.append(HeaderLine(txn_id, stored[0]))
        return lines

    async def _tidy_up(self) -> None:
        """Deletes records at the beginning that are not needed. Where that fails, they stay for now."""
        numbers = self._known.not_needed()
        if len(numbers) < _DELETED_FROM:
            return
        for part in parts_of(numbers, OPERATIONS_MAX // 2):
            paths = [path for number in part for path in _paths(number)]
            try:
                await self._delete(paths)
            except MagnetarError as error:
                # They are not needed: they go with later ones.
                _log.info("headers of transactions that are over are not deleted yet: %s", error)
                return
            self._known.deleted(part)

    async def _delete(self, paths: Sequence[str]) -> None:
        try:
            await self._store.transact([Delete(path) for path in paths])
        except NotFoundError:
            # An attempt that got no answer took effect, or a part of these was lost.
            for path in paths:
                with contextlib.suppress(NotFoundError):  # it is gone, as requested
                    await self._store.delete(path)


# -- records ---------------------------------------------------------------------------------------------


async def records_of(store: MetadataStore) -> AsyncIterator[tuple[int, list[HeaderLine]]]:
    """The numbers and lines of all records, ascending. Raises MetadataError, DamagedDocumentError."""
    numbers = await numbers_of(store)
    for before, number in pairwise(numbers):
        if number != before + 1:
            raise DamagedDocumentError(f"{keys.TRANSACTION_LOG}/{before + 1}", f"it is not there. {_LOST}")
    for start in range(0, len(numbers), TOGETHER):
        part = numbers[start : start + TOGETHER]
        for number, lines in zip(part, await gathered(record_at(store, each) for each in part), strict=True):
            yield number, lines or []


async def numbers_of(store: MetadataStore) -> list[int]:
    """Numbers of all records, ascending."""
    names = [name.removesuffix(_COPY) for name in await store.children(keys.TRANSACTION_LOG)]
    return sorted({int(name) for name in names if name.isdecimal()})


async def record_at(store: MetadataStore, number: int) -> list[HeaderLine] | None:
    """The lines of a record; None: it is not there. Raises MetadataError, DamagedDocumentError where neither
    it nor its copy can be read."""
    why = ""
    for path in _paths(number):
        value = await store.get(path)
        if value is not None:
            try:
                lines = decode(value.data)
            except ValueError as error:
                why = str(error)
                continue
            if why:
                _log.error("%s/%d in the metadata is damaged: its copy is used", keys.TRANSACTION_LOG, number)
            return lines
    if why:
        raise DamagedDocumentError(f"{keys.TRANSACTION_LOG}/{number}", f"{why}, and so is its copy. {_LOST}")
    return None


async def any_left(store: MetadataStore) -> bool:
    """Whether the log has headers. Raises MetadataError, DamagedDocumentError."""
    return bool(fold([lines async for _, lines in records_of(store)]))


def _paths(number: int) -> tuple[str, str]:
    path = f"{keys.TRANSACTION_LOG}/{number}"
    return path, path + _COPY


def _give(asked: _Asked, answer: object) -> None:
    if not asked.answer.done():
        asked.answer.set_result(answer)
