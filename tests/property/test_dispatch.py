"""Dispatchers against a model: nothing lost, nothing twice in flight, order where it is promised."""

from __future__ import annotations

from hypothesis import settings

from magnetar.base.ids import Position
from magnetar.broker.dispatch.api import Dispatcher
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from support.dispatch_machines import DispatchMachine, Redelivering, successor


class SharedMachine(Redelivering):
    def make(self) -> Dispatcher:
        return SharedDispatcher(self.cursor, Position(0, 0))


class KeySharedMachine(DispatchMachine):
    ordered_by_key = True

    def make(self) -> Dispatcher:
        return KeySharedDispatcher(
            self.cursor,
            Position(0, 0),
            sticky=False,
            allow_out_of_order=False,
            hash_of=lambda entry: entry[0] * 331,
        )


class KeySharedRedeliveryMachine(Redelivering):
    def make(self) -> Dispatcher:
        return KeySharedDispatcher(
            self.cursor,
            Position(0, 0),
            sticky=False,
            allow_out_of_order=True,
            hash_of=lambda entry: entry[0] * 331,
        )


class FailoverMachine(DispatchMachine):
    """One active consumer gets everything in order; a new one starts after mark-delete."""

    def make(self) -> Dispatcher:
        return SingleActiveDispatcher(
            self.cursor,
            Position(0, 0),
            failover=True,
            partition=-1,
            successor=successor,
            active_changed=self.active_changed,
        )

    def active_changed(self, consumer: Consumer, is_active: bool) -> None:
        if is_active and consumer in self.sent:
            self.sent[consumer].clear()

    def on_sent(self, consumer: Consumer, position: Position, key: bytes) -> None:
        assert consumer is next(iter(self.sent))
        held = self.sent[consumer]
        assert not held or position > held[-1]
        held.append(position)


TestShared = SharedMachine.TestCase
TestKeyShared = KeySharedMachine.TestCase
TestKeySharedRedelivery = KeySharedRedeliveryMachine.TestCase
TestFailover = FailoverMachine.TestCase
for _case in (TestShared, TestKeyShared, TestKeySharedRedelivery, TestFailover):
    _case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
del _case
