"""Recovery of transactions: a broker is killed with open ones in a hundred topics, and started again."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import frames as f
from bench import proc
from bench import protobuf as pb
from bench.broker import Cpus, started
from bench.connection import Connection
from bench.scan import BrokerAnswerError
from bench.transactions import Driver, JavaLoad, Metrics

OPEN_TOPICS: Final = 100
_END_TXN: Final = 56
_END_TXN_RESPONSE: Final = 57


class _Asker(Connection):
    """Ends transactions and reads messages."""

    def commit(self, transactions: Sequence[tuple[int, int]]) -> None:
        """Raises BrokerAnswerError."""
        for number, (most, least) in enumerate(transactions):
            self._send(
                _END_TXN, pb.field(1, number) + pb.field(2, least) + pb.field(3, most) + pb.field(4, 0)
            )
        for _ in transactions:
            kind, fields = self._receive()
            if kind != _END_TXN_RESPONSE or 4 in fields:
                raise BrokerAnswerError(f"END_TXN was answered by {kind}: {pb.text(fields, 5)}")

    def read(self, topic: str, messages: int) -> None:
        """Returns when a new reader of the topic has so many."""
        self.subscribe(topic, "reader", durable=False, earliest=True)
        self.flow(messages)
        while messages:
            kind, _ = self._receive()
            messages -= kind == f.MESSAGE
        self._request(f.CLOSE_CONSUMER, pb.field(1, 1), b"", 2, f.SUCCESS)


def recovery(program: Driver, scratch: Path, cpus: Cpus, command: Sequence[str], count: int) -> Metrics:
    """Killed with `count` open transactions, and started again."""
    opened: list[tuple[int, int]] = []
    with started(command, scratch, cpus, stop_signal=signal.SIGKILL) as broker:
        java = JavaLoad(program, ["open", broker.service_url, str(count), str(OPEN_TOPICS)])
        for line in java.lines("DONE"):
            word, _, rest = line.partition(" ")
            if word == "open":
                most, least = rest.split()
                opened.append((int(most), int(least)))
    # After the kill, or closing the producers would be a part of it.
    java.__exit__()
    found: Metrics = {"open_transactions": float(len(opened))}
    with started(command, scratch, cpus) as broker:
        assert broker.exec_s is not None
        assert broker.pid is not None
        found["ready_s"] = broker.ready_s or 0.0
        with _Asker(broker.service_url) as asker:
            asker.commit(opened[:1])
            found["first_commit_s"] = time.perf_counter() - broker.exec_s
            asker.commit(opened[1:OPEN_TOPICS])
            found["commits_s"] = time.perf_counter() - broker.exec_s
            for number in range(OPEN_TOPICS):
                asker.read(f"persistent://public/default/bench-open-{number}", 2 if opened else 1)
        found["all_topics_s"] = time.perf_counter() - broker.exec_s
        found["start_cpu_s"] = proc.usage(broker.pid).cpu_s
    return found
