"""Chooses the consumers of the entries of a vector that is not stored. Entries without a ready consumer are
dropped.

An entry costs permits as usual: one for each of its messages, and the balance may go below zero by one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from magnetar.broker.dispatch.active import ActiveConsumers
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.hashing import HashRing, StickyRanges


class ConsumerShare(NamedTuple):
    """The entries of a vector for one consumer."""

    consumer: Consumer
    entries: list[bytes]
    messages: int


class Chooser(Protocol):
    """Divides vectors over the consumers of a subscription. Every method is synchronous and total."""

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    def add(self, consumer: Consumer) -> None:
        """Attaches a consumer. Raises ConsumerBusyError or ConsumerAssignmentError."""

    def remove(self, consumer: Consumer) -> None:
        """Detaches a consumer."""

    def divide(self, entries: list[bytes], counts: list[int] | None) -> list[ConsumerShare]:
        """Takes permits and divides the entries; `counts` are messages per entry, None: one each.

        Entries that are in no share are dropped.
        """


class _Division:
    """Collects shares: one for each consumer, its entries in their order."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[Consumer, list[bytes], int]] = {}

    def give(self, consumer: Consumer, entry: bytes, messages: int) -> None:
        consumer.permits -= messages
        _, entries, total = self._taken.get(id(consumer), (consumer, [], 0))
        entries.append(entry)
        self._taken[id(consumer)] = (consumer, entries, total + messages)

    def shares(self) -> list[ConsumerShare]:
        return [ConsumerShare(*taken) for taken in self._taken.values()]


class ActiveChooser(ActiveConsumers):
    """Exclusive and Failover: all entries to the active consumer."""

    def divide(self, entries: list[bytes], counts: list[int] | None) -> list[ConsumerShare]:
        active = self.active
        if active is None or not active.ask_output():
            return []
        if counts is None:
            taken = entries[: active.permits]
            messages = len(taken)
        else:
            messages = stop = 0
            while stop < len(entries) and messages < active.permits:
                messages += counts[stop]
                stop += 1
            taken = entries[:stop]
        active.permits -= messages
        return [ConsumerShare(active, taken, messages)]


class SharedChooser:
    """Shared: entries in turn over the consumers of the best priority that can take one."""

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []
        self._turn = 0

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._consumers

    def add(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def divide(self, entries: list[bytes], counts: list[int] | None) -> list[ConsumerShare]:
        division = _Division()
        line = self._line()
        for row, entry in enumerate(entries):
            while line and line[self._turn % len(line)].permits <= 0:
                del line[self._turn % len(line)]
                line = line or self._line()
            if not line:
                break
            at = self._turn % len(line)
            self._turn = at + 1
            division.give(line[at], entry, 1 if counts is None else counts[row])
        return division.shares()

    def _line(self) -> list[Consumer]:
        """Consumers of the best priority that has any that are ready, in the order of their turns."""
        ready = [consumer for consumer in self._consumers if consumer.ask_output()]
        best = min((consumer.priority for consumer in ready), default=0)
        return [consumer for consumer in ready if consumer.priority == best]


class KeyChooser:
    """Key_Shared: entries of a key to the consumer that owns its hash."""

    def __init__(self, *, sticky: bool, hash_of: Callable[[bytes], int]) -> None:
        """`hash_of` gives the sticky hash of an entry's bytes."""
        self._owners: HashRing | StickyRanges = StickyRanges() if sticky else HashRing()
        self._hash_of = hash_of
        self._consumers: list[Consumer] = []

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._consumers

    def add(self, consumer: Consumer) -> None:
        self._owners.add(consumer)
        self._consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._owners.remove(consumer)
            self._consumers.remove(consumer)

    def divide(self, entries: list[bytes], counts: list[int] | None) -> list[ConsumerShare]:
        if not self._consumers:
            return []
        division = _Division()
        for row, entry in enumerate(entries):
            owner = self._owners.owner(self._hash_of(entry))
            if owner is not None and owner.ask_output():
                division.give(owner, entry, 1 if counts is None else counts[row])
        return division.shares()
