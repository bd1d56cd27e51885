"""The invariants of a session (pure): asserted after every step of tests, never in production."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from magnetar.base.machine import Machine
from magnetar.broker.session.session_states import SessionState
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.broker.topic.producer import Producer


def check_state(life: Machine[SessionState], *, closed: bool, attached: bool) -> None:
    """`closed`: what replies go by; `attached`: whether there are producers or consumers."""
    state = life.now
    assert closed == (state in (SessionState.CLOSING, SessionState.GONE)), life.story
    served = state in (SessionState.CONNECTED, SessionState.CLOSING)
    assert served or not attached, f"it holds producers or consumers: {life.story}"


def check_counts(out: Sequence[bytes], out_bytes: int, unsent_bytes: int, in_flight_bytes: int) -> None:
    """Bytes that wait for the client, that the driver has, and that wait for the log."""
    assert out_bytes == sum(map(len, out)), "bytes that wait are counted otherwise"
    assert unsent_bytes >= 0, "the driver sent more than it had"
    assert in_flight_bytes >= 0, "more is durable than was sent"


def check_attached(
    session: object,
    producers: Mapping[int, tuple[object, Producer]],
    closed_producers: Collection[int],
    consumers: Mapping[int, AttachedConsumer],
    between: Mapping[int, AttachedConsumer],
) -> None:
    """Each under its id, of this connection, and in one place."""
    assert not producers.keys() & closed_producers, "a producer is there, and closed"
    assert not consumers.keys() & between.keys(), "a reader is there, and between two places"
    for id_, (_, producer) in producers.items():
        assert producer.producer_id == id_, "a producer under another id"
        assert producer.connection is session, "a producer of another connection"
    for id_, consumer in [*consumers.items(), *between.items()]:
        assert consumer.consumer_id == id_, "a consumer under another id"
        assert consumer.connection is session, "a consumer of another connection"
