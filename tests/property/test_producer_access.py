"""Producer access against a model: which producers may publish, in which order, under which epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.broker.access.access_state import AccessMode, AccessState, Admission, Turn
from magnetar.broker.errors import ProducerBusyError, ProducerFencedError


@dataclass(eq=False)
class Client:
    """A producer on a connection."""

    producer_id: int
    name: str
    mode: AccessMode
    connection: object = field(default_factory=object)
    epoch: int = 0
    user_named: bool = False
    topic_epoch: int | None = None


class AccessMachine(RuleBasedStateMachine):
    """Clients come, go, lose their connection unnoticed and come again."""

    def __init__(self) -> None:
        super().__init__()
        self.access: AccessState[Client] = AccessState(None)
        self.made = 0
        self.told: list[int] = []
        """Epochs that holders were told, in order."""
        self.outside: list[Client] = []
        """Clients that once held the topic, were sent away and may come again."""

    def expected(self, client: Client) -> type[Exception] | Admission:
        members = list(self.access.members.values())
        if client.mode is AccessMode.SHARED:
            blocked = self.access.holder is not None or self.access.waiting
            return ProducerBusyError if blocked else Admission.JOINED
        if client.topic_epoch is not None and client.topic_epoch < (self.access.epoch or 0):
            return ProducerFencedError
        if members and client.mode is AccessMode.EXCLUSIVE:
            return ProducerFencedError
        if members and client.mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            return Admission.QUEUED
        return Admission.GRANTED

    def enter(self, client: Client) -> None:
        expected = self.expected(client)
        before = (list(self.access.members.values()), list(self.access.waiting), self.access.epoch)
        if not isinstance(expected, Admission):
            with pytest.raises(expected):
                self.access.enter(client)
            assert before == (
                list(self.access.members.values()),
                list(self.access.waiting),
                self.access.epoch,
            )
            return
        entry = self.access.enter(client)
        assert entry.admission is expected
        if client.mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            assert entry.sent_away == before[0]
            assert entry.refused == before[1]
            self.outside += [each for each in entry.sent_away if each.topic_epoch is not None]
        else:
            assert not entry.sent_away
            assert not entry.refused
        if entry.admission is Admission.GRANTED:
            self.granted(client)

    def granted(self, client: Client) -> None:
        epoch, before = self.access.reserve_epoch()
        assert before is None or epoch >= before
        assert client.topic_epoch is not None or epoch not in self.told, "two holders of one epoch"
        self.told.append(epoch)
        client.topic_epoch = epoch

    def take_turn(self, turn: Turn[Client]) -> None:
        assert all(each.topic_epoch is not None for each in turn.refused)
        if turn.granted is not None:
            self.granted(turn.granted)

    @rule(mode=st.sampled_from(AccessMode))
    def come(self, mode: AccessMode) -> None:
        self.made += 1
        self.enter(Client(self.made, f"p{self.made}", mode))

    @precondition(lambda self: self.outside)
    @rule(data=st.data())
    def come_again(self, data: Any) -> None:
        client = data.draw(st.sampled_from(self.outside))
        self.outside.remove(client)
        self.made += 1
        self.enter(Client(self.made, client.name, client.mode, topic_epoch=client.topic_epoch))

    @precondition(lambda self: self.access.members or self.access.waiting)
    @rule(data=st.data(), again=st.booleans())
    def leave(self, data: Any, again: bool) -> None:
        line = list(self.access.waiting)
        client = data.draw(st.sampled_from([*self.access.members.values(), *line]))
        turn = self.access.leave(client)
        if client in line:
            assert turn.granted is None
        elif line and not self.access.waiting and turn.granted is None:
            raise AssertionError("the line ended without a holder")
        elif turn.granted is not None:
            assert turn.granted is line[0], "somebody jumped the line"
        self.take_turn(turn)
        if again and client.topic_epoch is not None:
            self.outside.append(client)

    @precondition(lambda self: self.access.holder is not None)
    @rule()
    def reconnect_unnoticed(self) -> None:
        """The holder is back before the broker noticed that its connection died."""
        holder, line, epoch = self.access.holder, list(self.access.waiting), self.access.epoch
        assert holder is not None
        again = Client(
            holder.producer_id, holder.name, holder.mode, user_named=True, topic_epoch=holder.topic_epoch
        )
        entry = self.access.enter(again)
        assert entry == (Admission.GRANTED, [holder], [])
        assert self.access.reserve_epoch() == (epoch, epoch)
        assert self.access.waiting == line

    @precondition(lambda self: self.access.holder is not None)
    @rule()
    def write_fails(self) -> None:
        """A new holder's epoch cannot be stored."""
        holder = self.access.holder
        assert holder is not None
        holder.topic_epoch = None
        epoch, before = self.access.reserve_epoch()
        turn = self.access.grant_failed(holder, epoch, before)
        assert turn.granted is not None or self.access.epoch == before
        self.take_turn(turn)

    @invariant()
    def consistent(self) -> None:
        self.access.check()
        assert self.told == sorted(self.told)


TestAccess = AccessMachine.TestCase
TestAccess.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_named_producer_does_not_push_out_its_namesake() -> None:
    access: AccessState[Client] = AccessState(None)
    access.enter(Client(1, "p", AccessMode.SHARED, user_named=True))
    with pytest.raises(ProducerBusyError):
        access.enter(Client(1, "p", AccessMode.SHARED, user_named=True, epoch=1))


def test_a_reconnected_producer_takes_its_own_place() -> None:
    access: AccessState[Client] = AccessState(None)
    first = Client(1, "p", AccessMode.SHARED)
    access.enter(first)
    entry = access.enter(Client(1, "p", AccessMode.SHARED, epoch=1))
    assert entry == (Admission.JOINED, [first], [])


def test_a_waiting_producer_that_reconnects_keeps_its_place_in_line() -> None:
    access: AccessState[Client] = AccessState(None)
    access.enter(Client(1, "holder", AccessMode.EXCLUSIVE))
    first = Client(1, "first", AccessMode.WAIT_FOR_EXCLUSIVE)
    second = Client(1, "second", AccessMode.WAIT_FOR_EXCLUSIVE)
    access.enter(first)
    access.enter(second)
    again = Client(1, "first", AccessMode.WAIT_FOR_EXCLUSIVE, epoch=1)
    assert access.enter(again) == (Admission.QUEUED, [first], [])
    assert access.waiting == [again, second]
