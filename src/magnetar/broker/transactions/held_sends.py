"""SENDs of producers that wait until it is known whether a transaction is the topic's (pure).

Everything that such a producer sends waits with them, so that the order stays. What waits is bounded as all
that is in flight: by the connection's and the broker's budgets.
"""

from __future__ import annotations

from magnetar.broker.topic.producer import Producer
from magnetar.broker.transactions.coordinator import Who
from magnetar.wire.events import SendRun, TxnBits


class HeldSends:
    """Those of one topic."""

    def __init__(self) -> None:
        self._runs: dict[Producer, list[tuple[SendRun, Who]]] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def holds(self, producer: Producer) -> bool:
        """Whether something of the producer waits."""
        return producer in self._runs

    def waits(self, txn: TxnBits) -> bool:
        """Whether something of the transaction waits."""
        return any(run.txn == txn for runs in self._runs.values() for run, _ in runs)

    def hold(self, producer: Producer, runs: list[tuple[SendRun, Who]]) -> None:
        """The first that wait, of these roles."""
        assert producer not in self._runs, "they would overtake what waits"
        self._runs[producer] = runs

    def keep(self, producer: Producer, run: SendRun) -> bool:
        """Puts it behind what waits of its producer; False: nothing does."""
        waiting = self._runs.get(producer)
        if waiting is None:
            return False
        waiting.append((run, waiting[0][1]))
        return True

    def first(self, producer: Producer) -> SendRun | None:
        """The one that is to be taken next; None: nothing waits."""
        waiting = self._runs.get(producer)
        return waiting[0][0] if waiting else None

    def take(self, producer: Producer) -> list[tuple[SendRun, Who]]:
        """All that waits of it, in order; it waits no longer."""
        return self._runs.pop(producer, [])
