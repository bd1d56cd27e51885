"""The publish path of one topic: what admits a vector of entries, in which order it is asked (pure).

    closed? ──▶ not answered: the producer is sent away, and sends it again
    not ready? ──▶ refused whole: no client sends before it was told that it may
    damaged rows, false claims, a limit of the topic, entries that only transactions may bring? ──▶ refused
        row by row, in their places among the receipts
    beyond a rate? ──▶ taken; its connection is not read for a while
    else ──▶ taken: `StoredPublishing` has what follows on a topic that stores messages

Sessions call `publish` for each vector that they read. The driver is the topic (`any_topic.py`), which
attaches producers and loads what is asked here.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from magnetar.broker.errors import WIRE_CODES, ChecksumMismatchError, NotAllowedError, RefusedError
from magnetar.broker.topic import topic_claims as claims
from magnetar.broker.topic.producer import Producer, ProducerConnection
from magnetar.broker.topic.topic_tally import TopicTally
from magnetar.wire.events import SendRun

_CHECKSUM_MISMATCH: Final = "Checksum failed on the broker: the message was damaged on its way"


class PublishChecks(Protocol):
    """Limits on what is published: `limits/publish_gate.py` `PublishGate`."""

    def refusals(self, run: SendRun) -> dict[int, RefusedError]:
        """Rows that may not be published, and why."""

    def passed(self, connection: ProducerConnection, run: SendRun) -> None:
        """Counts a vector; beyond the rate its connection is not read for a while."""


class HeldRuns(Protocol):
    """SENDs that wait: `transactions/held_sends.py` `HeldSends`."""

    def keep(self, producer: Producer, run: SendRun) -> bool:
        """Puts it behind what waits of its producer; False: nothing does."""


class Limited(Protocol):
    """The limits of a topic, as its publish path sees them."""

    @property
    def gate(self) -> PublishChecks | None:
        """None without a limit on what is published."""


class PublishPath(ABC):
    """The publish path of one topic."""

    def __init__(self, limits: Limited, tally: TopicTally) -> None:
        self.limits = limits
        self.tally = tally
        self.closed = False
        """Whether the topic takes nothing any more."""
        self.screen: Callable[[Sequence[bytes]], Mapping[int, RefusedError]] | None = None
        """Which entries outside of transactions are refused, by row; None: nothing is checked."""
        self.held: HeldRuns | None = None
        """What waits to be admitted; the topic has a `screen` then. None: nothing ever did."""

    def publish(self, producer: Producer, run: SendRun) -> None:
        """Publishes a vector of entries of one producer; answers follow through its connection, in order."""
        if self.closed:
            # Not answered: the producer is sent away as soon as what came before is, and sends this again.
            producer.connection.published(run.size_bytes)
        elif not producer.ready:
            self._refuse_waiting(producer, run)
        elif (
            run.bad is None
            and self.limits.gate is None
            and (self.screen is None or run.txn is not None)
            and (run.plain or not claims.doubtful(run))
        ):
            self._take(producer, run)
        else:
            self._take_checked(producer, run)

    def _take_checked(self, producer: Producer, run: SendRun) -> None:
        """Publishes the rows that arrived intact, match their commands and keep the topic's limits."""
        if self.held is not None and self.held.keep(producer, run):
            return
        gate = self.limits.gate
        refused = {} if run.plain else claims.refusals(run)
        if self.screen is not None and run.txn is None:
            refused.update(self.screen(run.entries))
        if gate is not None:
            refused.update(gate.refusals(run))
            gate.passed(producer.connection, run)
        if run.bad is not None:
            refused.update(dict.fromkeys(run.bad, ChecksumMismatchError(_CHECKSUM_MISMATCH)))
        if not refused:
            self._take(producer, run)
            return
        assert max(refused) < len(run.entries), "a row is refused that was not sent"
        for error, rows in itertools.groupby(range(len(run.entries)), refused.get):
            part = run.select(rows)
            if error is None:
                self._take(producer, part)
            else:
                self.refuse(producer, part, error)

    def _refuse_waiting(self, producer: Producer, run: SendRun) -> None:
        """No client sends before it was told that its producer is ready."""
        producer.connection.send_errors(
            producer,
            run.sequence_ids,
            WIRE_CODES[NotAllowedError],
            "the producer waits for access to the topic",
        )
        producer.connection.published(run.size_bytes)

    @abstractmethod
    def _take(self, producer: Producer, run: SendRun) -> None:
        """Publishes rows that arrived whole, of a producer that may publish."""

    @abstractmethod
    def refuse(self, producer: Producer, run: SendRun, error: RefusedError) -> None:
        """Refuses rows, in their places among the receipts."""
