"""Dispatchers against a model: nothing lost, nothing twice in flight, order where it is promised."""

from __future__ import annotations

from hypothesis import settings

from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from support.dispatch_machines import DispatchMachine, Redelivering, failover, key_shared


class SharedMachine(Redelivering):
    def make(self) -> Dispatcher:
        return SharedDispatcher(self.cursor, Position(0, 0))


class KeySharedMachine(DispatchMachine):
    ordered_by_key = True

    def make(self) -> Dispatcher:
        return key_shared(self.cursor)


class KeySharedRedeliveryMachine(Redelivering):
    def make(self) -> Dispatcher:
        return key_shared(self.cursor, allow_out_of_order=True)


class FailoverMachine(DispatchMachine):
    """One active consumer gets everything in order; a new one starts after mark-delete."""

    def make(self) -> Dispatcher:
        return failover(self.cursor, self.active_changed)

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
