"""Subscriptions, and messages one by one."""

from __future__ import annotations

import asyncio
import threading
import zlib
from typing import Any

import cramjam
import pytest

from magnetar.admin.subscriptions.subscriptions import nth_unacked
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.service import BrokerConfig
from magnetar.runtime.threads import in_turn
from magnetar.wire import pulsar_pb2 as pb
from support.admin_api import AdminApi, T, with_api

S = f"{T}/t/subscription/s"
KEEP = BrokerConfig(retention_minutes=-1, retention_mib=-1)


async def backlog(api: AdminApi, name: str = "s", topic: str = "t") -> int:
    stats = await api.get(f"{T}/{topic}/stats")
    return int(stats["subscriptions"][name]["msgBacklog"])


def message_id(position: Position, **more: Any) -> dict[str, Any]:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id, **more}


def test_creation_at_any_position() -> None:
    async def story(api: AdminApi) -> None:
        positions = await api.publish("t", b"0", b"1", b"2", b"3")
        latest = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1, "partitionIndex": -1}
        for name, body, left in (
            ("none", None, 0),
            ("latest", "latest", 0),
            ("latest-id", latest, 0),
            ("earliest", "earliest", 4),
            ("earliest-id", {"ledgerId": -1, "entryId": -1}, 4),
            ("at", message_id(positions[1]), 3),
            ("after", message_id(positions[1], isExcluded=True), 2),
        ):
            await api.done("PUT", f"{T}/t/subscription/{name}", body)
            assert await backlog(api, name) == left, name
        assert (await api.refused("PUT", f"{T}/t/subscription/at"))[0] == 409
        for wrong in ("middle", 5, {"ledgerId": 1}, {"ledgerId": 1, "entryId": 1 << 63}):
            assert (await api.refused("PUT", f"{T}/t/subscription/x", wrong))[0] == 400

    with_api(story, config=KEEP)


def test_a_topic_that_is_not_there_is_created_where_clients_may() -> None:
    rules = "/admin/v2/namespaces/public/default/autoTopicCreation"

    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/new/subscription/s")
        assert await api.get(f"{T}/new/subscriptions") == ["s"]
        parted = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
        await api.done("POST", rules, parted)
        await api.done("PUT", f"{T}/parted/subscription/s")
        assert (await api.get(f"{T}/parted/partitions"))["partitions"] == 2
        assert await api.get(f"{T}/parted/subscriptions") == ["s"]
        await api.done("POST", rules, {"allowAutoTopicCreation": False})
        refused = (412, "Topic does not exist and cannot be auto-created")
        for name in ("none", "parted-partition-2"):
            assert await api.refused("PUT", f"{T}/{name}/subscription/s") == refused

    with_api(story)


def test_names_and_properties_have_the_bounds_of_the_protocol() -> None:
    many = {str(number): "" for number in range(257)}

    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        status, reason = await api.refused("PUT", f"{T}/t/subscription/{'s' * 1025}")
        assert (status, reason) == (412, "subscription has 1025 characters; 1024 are allowed")
        for properties in (many, {"p": "x" * (1 << 16)}):
            wanted = {"ledgerId": -1, "entryId": -1, "properties": properties}
            assert (await api.refused("PUT", f"{T}/t/subscription/s", wanted))[0] == 412
        assert await api.get(f"{T}/t/subscriptions") == []
        await api.done("PUT", S)
        assert (await api.refused("PUT", f"{S}/properties", many))[0] == 412
        assert (await api.refused("PUT", f"{T}/u", many))[0] == 412

    with_api(story)


def test_deletion() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", S)
        await api.done("DELETE", S)
        assert await api.refused("DELETE", S) == (
            404,
            "Subscription s not found for topic persistent://public/default/t",
        )
        assert await api.get(f"{T}/t/subscriptions") == []

    with_api(story)


def test_skipping_and_expiring() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", S, "earliest")
        await api.publish("t", b"0", b"1")
        api.clock.advance(60_000)
        positions = await api.publish("t", b"2", b"3", b"4", b"5")
        await api.done("POST", f"{S}/skip/1")
        assert await backlog(api) == 5
        await api.done("POST", f"{S}/expireMessages/30")
        assert await backlog(api) == 4
        await api.done("POST", f"{S}/expireMessages", message_id(positions[0]))
        assert await backlog(api) == 3
        await api.done("POST", f"{S}/expireMessages", message_id(positions[2], isExcluded=True))
        assert await backlog(api) == 2
        (await api.topic("t")).subscriptions["s"].cursor.ack([positions[3]])
        await api.done("POST", f"{S}/skip/1")
        assert await backlog(api) == 0
        await api.done("POST", f"{S}/resetcursor", "earliest")
        await api.done("POST", f"{S}/skip_all")
        assert await backlog(api) == 0
        await api.done("POST", f"{S}/resetcursor", "earliest")
        api.clock.advance(60_000)
        await api.done("POST", f"{T}/t/all_subscription/expireMessages/30")
        assert await backlog(api) == 0
        await api.done("POST", f"{S}/skip/1000000")
        assert (await api.refused("POST", f"{S}/skip/x"))[0] == 400

    with_api(story, config=KEEP)


def test_resetting() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", S, "earliest")
        first_ms = api.clock.now_ms()
        await api.publish("t", b"0", b"1")
        api.clock.advance(1_000)
        positions = await api.publish("t", b"2", b"3", b"4")
        for body, left in (
            ("latest", 0),
            ("earliest", 5),
            (message_id(positions[1]), 2),
            (message_id(positions[1], isExcluded=True), 1),
        ):
            await api.done("POST", f"{S}/resetcursor", body)
            assert await backlog(api) == left
        for time_ms, left in ((first_ms, 5), (first_ms + 1, 3), (first_ms + 1_001, 0), (0, 5)):
            await api.done("POST", f"{S}/resetcursor/{time_ms}")
            assert await backlog(api) == left

    with_api(story, config=KEEP)


def test_all_partitions_at_once() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/p/partitions", 2)
        subscription = f"{T}/p/subscription/s"
        await api.done("PUT", subscription, {"ledgerId": -1, "entryId": -1, "properties": {"k": "v"}})
        for part in (0, 1):
            await api.publish(f"p-partition-{part}", b"1", b"2")
        assert await api.get(f"{T}/p/subscriptions") == ["s"]
        assert await api.get(f"{subscription}/properties") == {"k": "v"}
        await api.done("POST", f"{subscription}/skip_all")
        assert [await backlog(api, topic=f"p-partition-{part}") for part in (0, 1)] == [0, 0]
        await api.done("POST", f"{subscription}/resetcursor/0")
        assert [await backlog(api, topic=f"p-partition-{part}") for part in (0, 1)] == [2, 2]
        assert (await api.refused("POST", f"{subscription}/skip/1"))[0] == 405
        assert (await api.refused("GET", f"{subscription}/position/1"))[0] == 405
        assert (await api.refused("GET", f"{T}/p/lastMessageId"))[0] == 405
        await api.done("DELETE", subscription)
        assert await api.get(f"{T}/p/subscriptions") == []

    with_api(story)


def test_positions_of_messages() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        assert await api.get(f"{T}/t/lastMessageId") == {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        positions = await api.publish("t", b"0", b"1")
        api.clock.advance(10)
        (batch,) = await api.publish("t", b"batch", num_messages_in_batch=3)
        assert await api.get(f"{T}/t/lastMessageId") == message_id(batch, partitionIndex=-1, batchIndex=2)
        found = await api.get(f"{T}/t/messageid/{api.clock.now_ms() - 5}")
        assert found == message_id(batch, partitionIndex=-1)
        found = await api.get(f"{T}/t/getMessageIdByIndex?index=1")
        assert found == message_id(positions[1], partitionIndex=-1)
        assert (await api.refused("GET", f"{T}/t/getMessageIdByIndex?index=9"))[0] == 404
        assert (await api.refused("GET", f"{T}/t/getMessageIdByIndex"))[0] == 400

    with_api(story)


def test_a_message_with_everything() -> None:
    async def story(api: AdminApi) -> None:
        properties = [pb.KeyValue(key="k", value='ü"\r\nX-Evil: 1')]
        (position,) = await api.publish(
            "t",
            zlib.compress(b"payload"),
            compression=pb.ZLIB,
            uncompressed_size=7,
            properties=properties,
            partition_key="ключ",
            event_time=1_000,
            null_value=False,
            schema_version=bytes(8),
        )
        answer = await api.call("GET", f"{T}/t/ledger/{position.ledger_id}/entry/{position.entry_id}")
        assert answer.body == b"payload"
        headers = answer.headers
        assert headers["x-pulsar-message-id"] == str(position)
        assert headers["x-pulsar-property"] == '{"k":"\\u00fc\\"\\r\\nX-Evil: 1"}'
        assert headers["x-pulsar-partition-key"] == "\\u043a\\u043b\\u044e\\u0447"
        assert headers["x-pulsar-event-time"] == "1970-01-01T00:00:01.000+00:00"
        assert headers["x-pulsar-compression"] == "ZLIB"
        assert headers["x-pulsar-null-value"] == "false"
        assert headers["x-pulsar-base64-schema-version-b64encoded"] == "AAAAAAAAAAA="
        assert headers["x-pulsar-broker-entry-metadata-index"] == "0"
        assert "x-pulsar-num-batch-message" not in headers

    with_api(story)


@pytest.mark.parametrize(
    ("compression", "body"),
    [
        (pb.LZ4, bytes(cramjam.lz4.compress_block(b"abc" * 50, store_size=False))),
        (pb.ZSTD, bytes(cramjam.zstd.compress(b"abc" * 50))),
        (pb.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 50))),
        (pb.ZLIB, zlib.compress(b"abc" * 50)),
    ],
    ids=["lz4", "zstd", "snappy", "zlib"],
)
def test_every_codec_is_read_and_damage_is_told(compression: int, body: bytes) -> None:
    async def story(api: AdminApi) -> None:
        size = {"compression": compression, "uncompressed_size": 150}
        (good,) = await api.publish("t", body, num_messages_in_batch=2, **size)
        (bad,) = await api.publish("t", b"\xff\xfe" * 9, **size)
        answer = await api.call("GET", f"{T}/t/ledger/{good.ledger_id}/entry/{good.entry_id}")
        assert answer.body == b"abc" * 50
        assert answer.headers["x-pulsar-num-batch-message"] == "2"
        assert answer.headers["x-pulsar-batch-size"] == "150"
        assert (await api.refused("GET", f"{T}/t/ledger/{bad.ledger_id}/entry/{bad.entry_id}"))[0] == 422

    with_api(story)


def test_a_claimed_size_is_not_believed() -> None:
    async def story(api: AdminApi) -> None:
        (position,) = await api.publish("t", b"x", compression=pb.LZ4, uncompressed_size=(1 << 32) - 1)
        assert (await api.refused("GET", f"{T}/t/ledger/{position.ledger_id}/entry/0"))[0] == 501

    with_api(story)


def test_missing_entries_and_encrypted_ones() -> None:
    async def story(api: AdminApi) -> None:
        key = pb.EncryptionKeys(key="k", value=b"v")
        (position,) = await api.publish("t", b"secret", encryption_keys=[key], compression=pb.LZ4)
        path = f"{T}/t/ledger/{position.ledger_id}/entry"
        answer = await api.call("GET", f"{path}/0")
        assert (answer.body, answer.headers["x-pulsar-is-encrypted"]) == (b"secret", "true")
        assert (await api.refused("GET", f"{path}/7"))[0] == 404
        assert (await api.refused("GET", f"{T}/t/ledger/0/entry/0"))[0] == 404
        assert (await api.refused("GET", f"{path}/{'9' * 30}"))[0] == 400

    with_api(story)


def test_peeking_leaves_messages_where_they_are() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", S, "earliest")
        positions = await api.publish("t", b"0", b"1", b"2")
        (await api.topic("t")).subscriptions["s"].cursor.ack([positions[1]])
        assert (await api.call("GET", f"{S}/position/2")).body == b"2"
        assert await backlog(api) == 2
        assert (await api.refused("GET", f"{S}/position/3"))[0] == 404
        assert (await api.refused("GET", f"{S}/position/0"))[0] == 400
        examine = f"{T}/t/examinemessage"
        assert (await api.call("GET", examine)).body == b"2"
        assert (await api.call("GET", f"{examine}?initialPosition=earliest&messagePosition=2")).body == b"1"
        assert (await api.refused("GET", f"{examine}?messagePosition=4"))[0] == 404

    with_api(story)


def test_a_small_message_does_not_wait_for_large_ones() -> None:
    """Large payloads are opened one at a time, and may come from another tenant."""
    may_end = threading.Event()

    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.publish("t", b"small")
        large = asyncio.ensure_future(in_turn(may_end.wait, 60))
        try:
            assert (await asyncio.wait_for(api.call("GET", f"{T}/t/examinemessage"), 60)).body == b"small"
            assert not large.done()
        finally:
            may_end.set()
            await large

    with_api(story)


def test_a_look_far_into_a_backlog_leaves_turns_to_others() -> None:
    """Each step takes a microsecond or two, and a backlog has millions of entries."""

    class Backlog:
        backlog_entries = 100_000
        last_position = mark_delete = Position(LedgerId(1), 0)

        @staticmethod
        def next_unacked(position: Position) -> Position:
            return position

        @staticmethod
        def next_position(position: Position) -> Position:
            return position

    class Holder:
        log = cursor = Backlog()

    async def story() -> int:
        holder: Any = Holder()
        looking = asyncio.ensure_future(nth_unacked(holder, holder, 50_000))
        turns = 0
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        await looking
        return turns

    assert asyncio.run(story()) >= 25
