"""Messages are refused a little before the disk is full, and nothing else is."""

from __future__ import annotations

import pytest

from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.full_disk import disk_measured
from magnetar.broker.service import BrokerConfig
from magnetar.broker.topic.disk_mark import DiskMark
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Type, World, command, in_world, send


def test_it_refuses_from_one_mark_on_and_takes_below_another() -> None:
    mark = DiskMark(97, 95)
    assert not mark.measured(96.9)
    mark.check()
    assert mark.measured(97.0)
    assert not mark.measured(99.0)
    with pytest.raises(ServiceNotReadyError, match=r"used to 97.0 %.*disk_full_percent"):
        mark.check()
    assert not mark.measured(95.0)
    assert mark.measured(94.9)
    mark.check()


def test_with_a_hundred_only_a_full_disk_refuses() -> None:
    mark = DiskMark(100, 95)
    assert not mark.measured(100.0)
    mark.check()


def test_producers_wait_while_consumers_go_on() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        open_ = command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=1)
        peer.send(
            open_,
            command(Type.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=2),
        )
        await world.until(
            lambda: peer.commands(Type.PRODUCER_SUCCESS) and peer.commands(Type.SUCCESS), "both"
        )
        peer.send(send(1, 0, b"before"))
        await world.until(lambda: peer.receipts, "a receipt")
        await disk_measured(world.broker, 98.0)
        await world.until(lambda: peer.commands(Type.CLOSE_PRODUCER), "sent away")
        assert peer.commands(Type.CLOSE_CONSUMER) == []
        peer.send(command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=3))
        await world.until(lambda: peer.commands(Type.ERROR), "refused")
        (refusal,) = peer.commands(Type.ERROR)
        assert refusal.error == pb.ServiceNotReady
        assert "98.0 %" in refusal.message
        await disk_measured(world.broker, 90.0)
        peer.send(command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=4))
        await world.until(lambda: len(peer.commands(Type.PRODUCER_SUCCESS)) == 2, "taken again")

    in_world(story, BrokerConfig(disk_full_percent=97, disk_resume_percent=95))
