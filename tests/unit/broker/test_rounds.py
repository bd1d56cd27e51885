"""Background rounds go on whatever happens on one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.rounds import guarded
from magnetar.broker.service import Broker, BrokerConfig
from support.sessions import World, in_world


async def broken(*_: object) -> None:
    raise ValueError("what nobody expected")


def test_an_unexpected_error_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(guarded(broken(), "the work"))
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "the work failed" in record.getMessage()


def test_cancellation_passes() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def story() -> None:
        with pytest.raises(asyncio.CancelledError):
            await guarded(cancelled(), "the work")

    asyncio.run(story())


ROUNDS: dict[str, Callable[[Broker], object]] = {
    "trimming": lambda broker: broker.maintain(),
    "compaction": lambda broker: broker._compact_due(),
    "limits": lambda broker: broker.enforce_limits(),
    "unused topics": lambda broker: broker.inactive.round(),
    "unused subscriptions": lambda broker: broker.inactive._subscriptions.round(),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_topic_in_trouble_keeps_no_round_from_the_next_topic(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        broker = world.broker
        seen: list[str] = []
        for local in ("a", "b"):
            topic = await broker.topic(TopicName.parse(f"persistent://public/default/{local}"))

            async def fails(*_: object, local: str = local, **__: object) -> None:
                seen.append(local)
                await broken()

            await topic.subscription("s", initial_earliest=True, start=None, properties=None)
            monkeypatch.setattr(topic.log, "trim", fails)
            monkeypatch.setattr(topic.log, "position_of_time", fails)
            monkeypatch.setattr(topic.compaction, "start_if_due", fails)
            topic.log.append([b"x"], None)
        await world.settle()

        async def fails_of(topic: object, *_: object) -> None:
            seen.append("b" if seen else "a")
            await broken()

        monkeypatch.setattr(broker.inactive, "_look", fails_of)
        monkeypatch.setattr(broker.inactive._subscriptions, "_look", fails_of)
        await broker.policies.update_namespace(
            topic.name.namespace_name, lambda document: document.update(message_ttl_in_seconds=1)
        )
        await broker.apply_policies()
        seen.clear()
        await ROUNDS[name](broker)  # type: ignore[misc]  # a coroutine each
        assert set(seen) == {"a", "b"}

    in_world(story, BrokerConfig())
