"""A coordinator: begins transactions, takes what they concern, and decides which role may end them (pure).

It decides nothing that survives by itself: a decision is the header in the store. The driver
(`transactions.py`) writes what is changed here and says when it is durable.

    OPEN ── ending ──▶ verdict ── header durable ──▶ COMMITTED or ABORTED ── resolved ──▶ an outcome
            (END_TXN, its time, an operator, a seek)
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from magnetar.base.ids import Position
from magnetar.broker.errors import (
    NotAllowedError,
    TooManyTransactionsError,
    TransactionNotFoundError,
    TransactionStateError,
)
from magnetar.broker.transactions.counts import Counts
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.outcomes import Outcomes
from magnetar.broker.transactions.transaction import POSITION_BYTES, Transaction, text_bytes

RESERVED: Final = 4_096
"""Numbers that are set aside with one write."""
TTL_MS_MAX: Final = 24 * 3_600_000
"""Longest time to live: what is open holds back every reader of its topics."""


class Who:
    """The role that makes a request."""

    __slots__ = ("role", "superuser")

    def __init__(self, role: str, *, superuser: bool = False) -> None:
        self.role = role
        self.superuser = superuser

    def may(self, txn: Transaction) -> bool:
        return self.superuser or self.role == txn.owner


ANYBODY: Final = Who("", superuser=True)
"""The requester for the broker's and operators' own requests."""


class Coordinator:
    """The transactions of one coordinator, from their beginning until they are resolved."""

    def __init__(self, number: int, *, open_max: int) -> None:
        self.number = number
        self.generation = 0
        """How often its broker has read it from the store, where several brokers have coordinators."""
        self.open_max = open_max
        self.outcomes = Outcomes()
        self.counts = Counts()
        self.next_sequence = 0
        self.reserved = 0
        """Numbers below it may be assigned: the store has reserved them."""
        self.transactions: dict[int, Transaction] = {}
        """By sequence: open ones, and decided ones that are not resolved."""
        self.unknown: dict[int, Transaction] = {}
        """By sequence: their stored headers are damaged, so it is not known whether they are open or decided,
        nor which topics they concern. `reason` says so."""
        self.open_count = 0
        self._open_of: Counter[str] = Counter()
        """Open ones, by owner."""
        self._deadlines: list[tuple[float, int]] = []
        """A heap; ended transactions stay until they are due."""

    # -- beginning ---------------------------------------------------------------------------------

    @property
    def must_reserve(self) -> bool:
        """Whether numbers must be set aside before the next transaction."""
        return self.next_sequence >= self.reserved

    def begin(self, owner: str, ttl_ms: int, *, started_ms: int, now_ms: float) -> Transaction:
        """A new transaction. `started_ms`: Unix; `now_ms`: of the clock that only runs.

        Raises TooManyTransactionsError, NotAllowedError.
        """
        if ttl_ms > TTL_MS_MAX:
            raise NotAllowedError(f"a transaction may take {TTL_MS_MAX} ms, not {ttl_ms}")
        if self.open_count >= self.open_max:
            raise TooManyTransactionsError(
                f"coordinator {self.number} has {self.open_count} open transactions, as many as it may"
            )
        # To begin one takes no right: without this rule a role would take all places for a day.
        if owner and self._open_of[owner] >= self.open_max - self.open_count:
            raise TooManyTransactionsError(
                f"role {owner} has {self._open_of[owner]} open transactions of coordinator {self.number}, "
                "as many as are free for others"
            )
        assert not self.must_reserve, "numbers are set aside first"
        sequence = self.next_sequence
        self.next_sequence += 1
        txn = Transaction(
            TxnId(self.number, sequence),
            owner=owner,
            ttl_ms=ttl_ms,
            started_ms=started_ms,
            deadline_ms=now_ms + ttl_ms,
        )
        self._add(txn)
        self.counts.created += 1
        return txn

    def recovered(self, txn: Transaction, *, wall_ms: int, now_ms: float) -> None:
        """A transaction of an earlier process. Its time to live continues; where the clock was set back
        meanwhile, at most from now on."""
        left_ms = min(max(txn.started_ms + txn.ttl_ms - wall_ms, 0), txn.ttl_ms)
        txn.deadline_ms = now_ms + left_ms
        if txn.state is TxnState.OPEN:
            self._add(txn)
        else:
            self.transactions[txn.id.sequence] = txn
            txn.unresolved = txn.topics
        self.next_sequence = max(self.next_sequence, txn.id.sequence + 1)

    def damaged(self, txn: Transaction, reason: str) -> None:
        """A transaction of an earlier process whose header cannot be read. Its time does not end it: it may
        be committed."""
        txn.reason = reason
        self.unknown[txn.id.sequence] = txn
        self.next_sequence = max(self.next_sequence, txn.id.sequence + 1)

    def take_up(self, txn: Transaction, *, now_ms: float) -> None:
        """All topics that hold entries of an unknown transaction are known, and it is to be aborted: it is
        open from now on, and its time is over."""
        if self.unknown.pop(txn.id.sequence, None) is not None:
            txn.deadline_ms = now_ms
            self._add(txn)

    def _add(self, txn: Transaction) -> None:
        self.transactions[txn.id.sequence] = txn
        self.open_count += 1
        self._open_of[txn.owner] += 1
        heapq.heappush(self._deadlines, (txn.deadline_ms, txn.id.sequence))

    def _ended(self, owner: str) -> None:
        self.open_count -= 1
        self._open_of[owner] -= 1
        if not self._open_of[owner]:
            del self._open_of[owner]

    # -- while it is open --------------------------------------------------------------------------

    def find(self, txn_id: TxnId, who: Who) -> Transaction | None:
        """The transaction; None when it is resolved. Raises TransactionNotFoundError."""
        txn = self.transactions.get(txn_id.sequence)
        if txn is None:
            if (unknown := self.unknown.get(txn_id.sequence)) is not None:
                raise TransactionNotFoundError(unknown.reason)
            if self.outcomes.of(txn_id.sequence) is None:
                lost = self.outcomes.lost(txn_id.sequence)
                raise TransactionNotFoundError(f"transaction {txn_id} is not known{lost and f': {lost}'}")
            return None
        if not who.may(txn):
            raise TransactionNotFoundError(f"transaction {txn_id} is not known to {who.role or 'you'}")
        return txn

    def find_open(self, txn_id: TxnId, who: Who) -> Transaction:
        """The transaction, which must be open. Raises TransactionNotFoundError, TransactionStateError."""
        txn = self.find(txn_id, who)
        if txn is None or txn.state is not TxnState.OPEN or txn.ending is not None or txn.closing:
            state = self.outcomes.of(txn_id.sequence) if txn is None else txn.ending or txn.state
            assert state is not None
            raise TransactionStateError(f"transaction {txn_id} is {state.value} and takes nothing more")
        return txn

    @staticmethod
    def add_partitions(txn: Transaction, topics: Iterable[tuple[str, str, Position | None]]) -> None:
        """Topics that may get its messages: full name, as named, last entry now (None: not known).

        All or none. Raises NotAllowedError when the header would be too large.
        """
        new = [(name, named, last) for name, named, last in topics if name not in txn.partitions]
        txn.grow(sum(text_bytes(name) + 2 * text_bytes(named) + POSITION_BYTES for name, named, _ in new))
        for name, named, last in new:
            if name not in txn.partitions:
                txn.partitions[name] = last
                if named != name:
                    txn.names[name] = named
                txn.changed()

    # -- ending ------------------------------------------------------------------------------------

    def begin_end(self, txn_id: TxnId, wanted: TxnState, who: Who, *, reason: str = "") -> Transaction | None:
        """The transaction becomes closed to changes, and is to end this way; None: it has ended so. One that
        is ending already continues as it began: its end is known once it is durable, and not before.

        Raises TransactionNotFoundError, and TransactionStateError when it ended the other way.
        """
        txn = self.find(txn_id, who)
        known = self.outcomes.of(txn_id.sequence) if txn is None else txn.state
        if known is not None and known is not TxnState.OPEN:
            if known is not wanted:
                why = f" ({txn.reason})" if txn is not None and txn.reason else ""
                raise TransactionStateError(f"transaction {txn_id} is {known.value} already{why}")
            return None
        assert txn is not None
        if txn.ending is None:
            txn.ending, txn.reason = wanted, reason
        return txn

    @staticmethod
    def decide(txn: Transaction) -> None:
        """All that it holds is durable: the next write of its header decides it."""
        assert txn.ending is not None, "a transaction is decided while it ends"
        if txn.verdict is None:
            txn.verdict = txn.ending
            txn.changed()

    def take_back_end(self, txn: Transaction) -> None:
        """It could not end so: it is open as before."""
        if txn.state is TxnState.OPEN:
            txn.ending, txn.verdict, txn.reason = None, None, ""
            heapq.heappush(self._deadlines, (txn.deadline_ms, txn.id.sequence))

    def decided(self, txn: Transaction, state: TxnState, now_ms: float) -> None:
        """The header with the decision is durable."""
        assert txn.state is TxnState.OPEN, "a decision changes"
        assert state is not TxnState.OPEN
        txn.state, txn.ending, txn.verdict = state, None, None
        txn.unresolved = txn.topics
        self._ended(txn.owner)
        self.counts.ended(txn, now_ms)

    def due(self, now_ms: float) -> list[Transaction]:
        """Transactions that have timed out and are not ending yet."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            txn = self.transactions.get(heapq.heappop(self._deadlines)[1])
            if txn is not None and txn.state is TxnState.OPEN and txn.ending is None:
                found.append(txn)
        return found

    @property
    def next_deadline_ms(self) -> float | None:
        """Upper bound of the next time at which to call `due`; None: none is open."""
        heap = self._deadlines
        while heap and ((txn := self.transactions.get(heap[0][1])) is None or txn.state is not TxnState.OPEN):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    # -- afterwards --------------------------------------------------------------------------------

    @staticmethod
    def resolved_by(txn: Transaction, topic: str) -> bool:
        """A topic has made durable what the decision means for it; whether all have, with this one."""
        if topic not in txn.unresolved:
            return False
        txn.unresolved.discard(topic)
        return not txn.unresolved

    def ended(self, txns: Iterable[Transaction]) -> set[int]:
        """Their outcomes replace their headers; the pages that changed."""
        known = [(txn.id.sequence, txn.state) for txn in txns]
        return self.outcomes.add(known)

    def forget(self, txns: Iterable[Transaction]) -> None:
        """Their headers are deleted, durably, and their outcomes are stored."""
        for txn in txns:
            self.transactions.pop(txn.id.sequence, None)

    def open_ones(self) -> Iterator[Transaction]:
        """All that are not decided."""
        return (txn for txn in self.transactions.values() if txn.state is TxnState.OPEN)

    def oldest_ms(self, now_ms: float) -> float:
        """Age of the transaction that has been open for longest, on the clock that only runs; 0: none is."""
        return max((txn.age_ms(now_ms) for txn in self.open_ones()), default=0.0)

    @property
    def low_water_mark(self) -> int:
        """All transactions up to it have ended (Pulsar's term)."""
        return min((txn.id.sequence for txn in self.open_ones()), default=self.next_sequence) - 1

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.next_sequence <= self.reserved or not self.transactions
        assert self.open_count == sum(1 for _ in self.open_ones())
        assert self._open_of == Counter(txn.owner for txn in self.open_ones())
        waiting = {sequence for _, sequence in self._deadlines}
        assert not self.unknown.keys() & self.transactions.keys()
        assert all(sequence < self.next_sequence for sequence in self.unknown)
        for sequence, txn in self.transactions.items():
            txn.check()
            assert txn.id == TxnId(self.number, sequence)
            assert sequence < self.next_sequence
            assert txn.state is not TxnState.OPEN or txn.ending is not None or sequence in waiting
            assert txn.state is not TxnState.OPEN or self.outcomes.of(sequence) is None
