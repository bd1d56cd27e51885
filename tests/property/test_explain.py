"""Every subscription that sends nothing has a reason; one that sends never claims to be stuck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from magnetar.base.ids import Position
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.explain.live_views import dispatcher_view
from magnetar.broker.explain.reasons import DiagnosedState, diagnose, of_consumer
from magnetar.broker.explain.subscription_view import View
from support.dispatch_machines import DispatchMachine, Redelivering, failover, key_shared


class Explained(DispatchMachine):
    """Asks before and after each pump; limits and slow connections come and go."""

    def view(self) -> View:
        read_to = max(0, self.dispatcher.read_position.entry_id)
        known = View(unread=max(0, len(self.log) - read_to), backlog=len(self.log) - len(self.cursor.done))
        return dispatcher_view(self.dispatcher, known, lambda consumer: consumer.unacked)

    def pump(self) -> None:
        before = diagnose(self.view())
        held = sum(map(len, self.sent.values()))
        super().pump()
        if sum(map(len, self.sent.values())) > held:
            assert before.state is DiagnosedState.DISPATCHING, before

    @invariant()
    def whoever_is_idle_has_a_reason(self) -> None:
        view = self.view()
        found = diagnose(view)
        assert found.state is not DiagnosedState.DISPATCHING, found
        assert found.sentence
        if found.state in (DiagnosedState.DRAINING, DiagnosedState.OWNER_NOT_READY, DiagnosedState.NO_OWNER):
            assert view.waiting
            assert not view.can_serve_line
        if found.state in (
            DiagnosedState.NO_PERMITS,
            DiagnosedState.BLOCKED_CONSUMERS,
            DiagnosedState.OUTPUT_FULL,
        ):
            states = {of_consumer(each, view).state for each in view.consumers}
            assert found.state in states
            assert DiagnosedState.DISPATCHING not in states

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), messages_max=st.integers(0, 4))
    def limit_a_consumer(self, data: Any, messages_max: int) -> None:
        data.draw(st.sampled_from(list(self.sent))).limit_unacked(messages_max)
        self.pump()

    @precondition(lambda self: isinstance(self.dispatcher, SharedDispatcher))
    @rule(messages_max=st.integers(0, 6))
    def limit_the_subscription(self, messages_max: int) -> None:
        assert isinstance(self.dispatcher, SharedDispatcher)
        self.dispatcher.unacked.limit(messages_max)
        self.pump()

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), writable=st.booleans())
    def connection(self, data: Any, writable: bool) -> None:
        data.draw(st.sampled_from(list(self.sent))).outlet.writable = writable
        self.pump()

    def teardown(self) -> None:
        for consumer in self.sent:
            consumer.outlet.writable = True  # type: ignore[misc]  # the machine's pipe, not a connection
        super().teardown()


class SharedExplained(Explained, Redelivering):
    def make(self) -> Dispatcher:
        return SharedDispatcher(self.cursor, Position(0, 0))


class KeySharedExplained(Explained):
    ordered_by_key = True

    def make(self) -> Dispatcher:
        return key_shared(self.cursor)


class FailoverExplained(Explained):
    def make(self) -> Dispatcher:
        return failover(self.cursor, lambda consumer, active: self.sent[consumer].clear() if active else None)


@pytest.mark.parametrize("machine", [SharedExplained, KeySharedExplained, FailoverExplained])
def test_idle_subscriptions_have_a_reason_and_busy_ones_do_not(machine: Callable[[], Explained]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
