"""Which producers of a topic may publish: the rules, without a log and without connections."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from magnetar.base.ids import ProducerId
from magnetar.broker.errors import ProducerBusyError, ProducerFencedError


class AccessMode(IntEnum):
    """As numbered on the wire (`ProducerAccessMode`)."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class ProducerCandidate(Protocol):
    """The properties of a producer that the rules use. Candidates are compared by identity."""

    @property
    def producer_id(self) -> ProducerId: ...

    @property
    def name(self) -> str: ...

    @property
    def connection(self) -> object: ...

    @property
    def epoch(self) -> int:
        """Raised by the client at each reconnection of the same producer."""

    @property
    def user_named(self) -> bool: ...

    @property
    def mode(self) -> AccessMode: ...

    @property
    def topic_epoch(self) -> int | None:
        """The epoch under which it held the topic before; None: never."""


P = TypeVar("P", bound=ProducerCandidate)


class Admission(Enum):
    """The outcome for a candidate."""

    JOINED = "joined"
    """It may publish."""
    GRANTED = "granted"
    """It holds the topic and may publish once its epoch is durable."""
    QUEUED = "queued"
    """It waits in line."""


class Entry(NamedTuple, Generic[P]):
    """The decision of `enter`."""

    admission: Admission
    sent_away: list[P]
    """Were attached and are no longer."""
    refused: list[P]
    """Waited in line and do no longer: they are fenced."""


class Turn(NamedTuple, Generic[P]):
    """The next holder after a producer left."""

    granted: P | None
    refused: list[P]
    """Had waited under an old epoch."""


class AccessState(Generic[P]):
    """Producers of one topic."""

    def __init__(self, epoch: int | None) -> None:
        """`epoch` is the stored one, None when the topic never had an exclusive producer."""
        self.epoch = epoch
        self.members: dict[str, P] = {}
        """Attached producers by name, and the holder whose epoch is being stored."""
        self.holder: P | None = None
        self.waiting: list[P] = []

    def enter(self, candidate: P) -> Entry[P]:
        """Lets a producer in, or in line. Raises ProducerBusyError, ProducerFencedError; nothing has
        changed then."""
        before = self._predecessor(candidate)
        if candidate.mode is AccessMode.SHARED:
            return self._enter_shared(candidate, before)
        if self._stale(candidate):
            raise ProducerFencedError(
                f"the topic is at epoch {self.epoch}, the producer's is {candidate.topic_epoch}:"
                " another one has taken over since"
            )
        if before is not None and before is self.holder:
            self.members.clear()
            self._grant(candidate)
            return Entry(Admission.GRANTED, _others(candidate, [before]), [])
        if self.members and candidate.mode is AccessMode.EXCLUSIVE:
            raise ProducerFencedError(
                "Topic has existing shared producers"
                if self.holder is None
                else f"Topic has an existing exclusive producer: {self.holder.name}"
            )
        if self.members and candidate.mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            return self._enqueue(candidate, before)
        # Alone, or fencing: all others leave.
        entry = Entry(Admission.GRANTED, list(self.members.values()), list(self.waiting))
        self.waiting.clear()
        self.members.clear()
        self._grant(candidate)
        return entry

    def _enter_shared(self, candidate: P, before: P | None) -> Entry[P]:
        if before is None:
            if self.holder is not None:
                raise ProducerBusyError(f"Topic has an existing exclusive producer: {self.holder.name}")
            if self.waiting:
                raise ProducerBusyError("producers wait for exclusive access to the topic")
            if candidate.name in self.members:
                raise ProducerBusyError(
                    f"Producer with name '{candidate.name}' is already connected to topic"
                )
        self.members[candidate.name] = candidate
        return Entry(Admission.JOINED, _others(candidate, [before]), [])

    def _enqueue(self, candidate: P, before: P | None) -> Entry[P]:
        if before is None:
            self.waiting.append(candidate)
        else:
            self.waiting[self.waiting.index(before)] = candidate
        return Entry(Admission.QUEUED, _others(candidate, [before]), [])

    def _predecessor(self, candidate: P) -> P | None:
        """The same producer's earlier connection."""
        for member in (*self.members.values(), *self.waiting):
            if member.name != candidate.name or member.mode is not candidate.mode:
                continue
            shows = member is self.holder and candidate.topic_epoch is not None
            if _succeeds(candidate, member) or (shows and candidate.topic_epoch == self.epoch):
                return member
        return None

    def _stale(self, candidate: P) -> bool:
        shown = candidate.topic_epoch
        return shown is not None and self.epoch is not None and shown < self.epoch

    def _grant(self, candidate: P) -> None:
        assert not self.members
        self.members[candidate.name] = candidate
        self.holder = candidate

    def reserve_epoch(self) -> tuple[int, int | None]:
        """The epoch of the new holder, to be stored, and the one before it. They are the same when the
        holder only reconnected."""
        holder, before = self.holder, self.epoch
        assert holder is not None
        if holder.topic_epoch is not None:
            self.epoch = holder.topic_epoch
        else:
            self.epoch = 0 if before is None else before + 1
        return self.epoch, before

    def grant_failed(self, candidate: P, epoch: int, before: int | None) -> Turn[P]:
        """`epoch` could not be stored: its holder leaves."""
        if self.epoch == epoch:
            self.epoch = before
        return self.leave(candidate)

    def leave(self, candidate: P) -> Turn[P]:
        """A producer left, attached or not; returns the new holder of the topic, if that changed."""
        if candidate in self.waiting:
            self.waiting.remove(candidate)
        elif self.members.get(candidate.name) is candidate:
            del self.members[candidate.name]
            if self.holder is candidate:
                self.holder = None
        refused: list[P] = []
        while self.waiting and not self.members:
            following = self.waiting.pop(0)
            if self._stale(following):
                refused.append(following)
                continue
            self._grant(following)
            return Turn(following, refused)
        return Turn(None, refused)

    def check(self) -> None:
        """Walks the invariants."""
        if self.holder is not None:
            assert list(self.members.values()) == [self.holder]
            assert self.holder.mode is not AccessMode.SHARED
        assert all(each.mode is AccessMode.SHARED or each is self.holder for each in self.members.values())
        assert not self.waiting or self.members, "a producer waits for no holder"
        assert all(each.mode is AccessMode.WAIT_FOR_EXCLUSIVE for each in self.waiting)
        assert len({id(each) for each in (*self.waiting, *self.members.values())}) == len(self.waiting) + len(
            self.members
        )


def _same(candidate: ProducerCandidate, other: ProducerCandidate) -> bool:
    """The same client's same producer, requested again: no other client is affected."""
    return other.connection is candidate.connection and other.producer_id == candidate.producer_id


def _others(candidate: P, predecessors: list[P | None]) -> list[P]:
    """The predecessors of other clients, which must be told that they were replaced."""
    return [each for each in predecessors if each is not None and not _same(candidate, each)]


def _succeeds(candidate: ProducerCandidate, other: ProducerCandidate) -> bool:
    return _same(candidate, other) or (not candidate.user_named and candidate.epoch > other.epoch)
