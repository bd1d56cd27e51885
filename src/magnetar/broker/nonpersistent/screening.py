"""The filters of a non-persistent subscription: what the loop has no time for waits in order, within a bound.

    free ──a vector with entries that are left──▶ judging ──no more wait──▶ free

While it is judging, all that arrives waits behind what came before, or is dropped where too much waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple

from magnetar.broker.filters.beside import judged
from magnetar.broker.filters.entry_filter import FilterError, Verdict
from magnetar.broker.filters.judge import Judge

WAITING_BYTES_MAX: Final = 1 << 20
"""Bytes of entries that wait for the filters of a subscription, but for one vector that may be larger."""
_ENTRY_BYTES: Final = 200
"""Bytes that an entry counts for beside its own."""


class _Vector(NamedTuple):
    entries: Sequence[bytes]
    counts: Sequence[int]
    """Messages of each entry."""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.entries)) + _ENTRY_BYTES * len(self.entries)


class Screening:
    """See the module."""

    def __init__(
        self,
        judge: Judge,
        tenant: str,
        spawn: Callable[[Coroutine[object, object, object]], None],
        *,
        decided: Callable[[Sequence[bytes], Sequence[int], Sequence[Verdict]], None],
        failed: Callable[[FilterError | None, int], None],
    ) -> None:
        """`decided` gets entries with their verdicts, in order; `failed` why messages cannot be judged (None:
        too many wait), and how many they are."""
        self.judge = judge
        self._tenant = tenant
        self._spawn = spawn
        self._decided = decided
        self._failed = failed
        self._waiting: deque[_Vector] = deque()
        self._waiting_bytes = 0
        self._judging = False

    def take(self, entries: Sequence[bytes], counts: Sequence[int]) -> None:
        """A vector arrives; `counts` are messages per entry."""
        if not self._judging:
            try:
                done = self.judge.verdicts(entries, counts)
            except FilterError as error:
                self._failed(error, sum(counts))
                return
            self._decide(_Vector(entries, counts), done)
            entries, counts = entries[len(done) :], counts[len(done) :]
        if not entries:
            return
        vector = _Vector(entries, counts)
        if self._waiting and self._waiting_bytes + vector.size_bytes > WAITING_BYTES_MAX:
            self._failed(None, sum(counts))
            return
        self._waiting.append(vector)
        self._waiting_bytes += vector.size_bytes
        if not self._judging:
            self._judging = True
            self._spawn(self._run())

    def end(self) -> None:
        """Other filters are in force: what waits is dropped."""
        self._failed(None, sum([sum(vector.counts) for vector in self._waiting]))
        self._waiting.clear()
        self._waiting_bytes = 0

    async def _run(self) -> None:
        try:
            while self._waiting:
                vector = self._waiting[0]
                done: list[Verdict] = []
                error: FilterError | None = None
                try:
                    done = await judged(self.judge, self._tenant, vector.entries, vector.counts)
                except FilterError as failure:
                    error = failure
                # `end` may have dropped it meanwhile.
                if self._waiting and self._waiting[0] is vector:
                    self._next(vector, done, error)
        finally:
            self._judging = False

    def _next(self, vector: _Vector, done: Sequence[Verdict], error: FilterError | None) -> None:
        self._waiting.popleft()
        self._waiting_bytes -= vector.size_bytes
        if error is not None:
            self._failed(error, sum(vector.counts))
            return
        left = _Vector(vector.entries[len(done) :], vector.counts[len(done) :])
        if left.entries:
            self._waiting.appendleft(left)
            self._waiting_bytes += left.size_bytes
        self._decide(vector, done)

    def _decide(self, vector: _Vector, done: Sequence[Verdict]) -> None:
        if done:
            self._decided(vector.entries[: len(done)], vector.counts[: len(done)], done)

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self._judging or not self._waiting, "entries wait that nothing judges"
        assert self._waiting_bytes == sum(vector.size_bytes for vector in self._waiting), (
            "bytes were miscounted"
        )
