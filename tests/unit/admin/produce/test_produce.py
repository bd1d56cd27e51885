"""Publishing over HTTP: what arrives, what is refused, which roles may."""

from __future__ import annotations

import struct
from typing import Any

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from support.admin_api import AdminApi, with_api

PATH = "/topics/persistent/public/default/t"
N = "/admin/v2/namespaces/public/default"


async def published(api: AdminApi, path: str, body: Any) -> Any:
    answer = await api.call("POST", path, body)
    assert answer.status == 200, answer.body
    return answer.json


async def stored(api: AdminApi, message_id: str, topic: str = "t") -> tuple[pb.MessageMetadata, bytes]:
    """The message of an answer, as it is stored."""
    ledger, entry, partition = map(int, message_id.split(":"))
    name = TopicName.parse(f"persistent://public/default/{topic}")
    log = (await api.broker.topic(name if partition < 0 else name.with_partition(partition))).log
    (run,) = await log.read(Position(ledger, entry), 1, 1)
    parts = payload.split_entry(run.entries[0])
    return payload.parse_metadata(parts.metadata), bytes(parts.payload)


def test_messages_arrive_with_what_was_said_of_them() -> None:
    async def story(api: AdminApi) -> None:
        message = {
            "payload": "grüße",
            "key": "k",
            "properties": {"a": "b"},
            "eventTime": 7,
            "deliverAfterMs": 1000,
        }
        answer = await published(api, PATH, {"producerName": "me", "messages": [message, {"payload": ""}]})
        first, second = answer["messagePublishResults"]
        metadata, body = await stored(api, first["messageId"])
        assert body.decode() == "grüße"
        assert (metadata.producer_name, metadata.partition_key, metadata.event_time) == ("me", "k", 7)
        assert metadata.deliver_at_time == api.clock.now_ms() + 1000
        assert {each.key: each.value for each in metadata.properties} == {"a": "b"}
        assert (await stored(api, second["messageId"]))[1] == b""
        assert answer["schemaVersion"] == -1
        assert not (await api.topic("persistent://public/default/t")).producers

    with_api(story)


def test_numbers_are_written_as_their_schema_says() -> None:
    async def story(api: AdminApi) -> None:
        body = {"valueSchema": '{"type":"INT32"}', "messages": [{"payload": "-5"}]}
        answer = await published(api, PATH, body)
        assert answer["schemaVersion"] == 0
        found = await stored(api, answer["messagePublishResults"][0]["messageId"])
        assert found[1] == struct.pack(">i", -5)
        assert (await api.get("/admin/v2/schemas/public/default/t/schema"))["type"] == "INT32"
        body["messages"] = [{"payload": "many"}]
        assert (await api.refused("POST", PATH, body))[0] == 400
        avro = {"valueSchema": '{"type":"AVRO"}', "messages": [{"payload": "x"}]}
        assert (await api.refused("POST", PATH, avro))[0] == 501

    with_api(story)


def test_messages_of_one_key_stay_in_one_partition() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", "/admin/v2/persistent/public/default/p/partitions", 4)
        messages = [{"payload": "x", "key": key} for key in "abcdabcd"]
        answer = await published(api, "/topics/persistent/public/default/p", {"messages": messages})
        ids = [each["messageId"] for each in answer["messagePublishResults"]]
        places = [each.rpartition(":")[2] for each in ids]
        assert places[:4] == places[4:] == ["1", "2", "3", "0"], "as Java's clients place them"
        one = await published(api, "/topics/persistent/public/default/p/partitions/2", {"messages": messages})
        assert {each["messageId"][-2:] for each in one["messagePublishResults"]} == {":2"}

    with_api(story)


def test_limits_hold() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", "/admin/v2/persistent/public/default/t")
        await api.done("POST", "/admin/v2/persistent/public/default/t/maxMessageSize", 100)
        body = {"messages": [{"payload": "x"}, {"payload": "x" * 200}, {"payload": "y"}]}
        first, second, third = (await published(api, PATH, body))["messagePublishResults"]
        assert "errorMsg" in second
        assert "messageId" in first
        assert "messageId" in third
        await api.done("POST", f"{N}/encryptionRequired", True)  # a body
        assert (await api.call("POST", PATH, {"messages": [{"payload": "x"}]})).status >= 400
        for wrong in (None, {}, {"messages": []}, {"messages": [1]}, {"messages": [{"payload": 1}]}):
            assert (await api.call("POST", PATH, wrong)).status >= 400
        assert (await api.call("POST", "/topics/other/public/default/t", body)).status == 400

    with_api(story)


def test_what_was_published_before_is_a_duplicate() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("POST", f"{N}/deduplication", True)  # a body
        body = {"producerName": "me", "messages": [{"payload": "x", "sequenceId": 3}]}
        first = (await published(api, PATH, body))["messagePublishResults"][0]["messageId"]
        assert not first.startswith("-1")
        again = (await published(api, PATH, body))["messagePublishResults"][0]["messageId"]
        assert again == "-1:-1:-1"

    with_api(story)


def test_topics_that_store_nothing_take_messages_too() -> None:
    async def story(api: AdminApi) -> None:
        path = "/topics/non-persistent/public/default/np"
        answer = await published(api, path, {"messages": [{"payload": "x"}]})
        assert answer["messagePublishResults"] == [{"messageId": "-1:-1:-1"}]

    with_api(story)
