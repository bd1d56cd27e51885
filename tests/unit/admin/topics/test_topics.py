"""Topics, partitions, properties, statistics, schemas."""

from __future__ import annotations

from magnetar.broker.topic.producer import Producer
from support.admin_api import AdminApi, RecordingConnection, T, with_api

MISSING = (404, "Topic persistent://public/default/t not found")


def test_creation_and_deletion() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        assert (await api.refused("PUT", f"{T}/t"))[0] == 409
        assert await api.get(T) == ["persistent://public/default/t"]
        await api.done("PUT", f"{T}/t/subscription/s")
        await api.publish("t", b"not acknowledged")
        # No consumer is connected to the subscription: it goes with the topic, as in Pulsar.
        await api.done("DELETE", f"{T}/t")
        assert await api.refused("DELETE", f"{T}/t") == MISSING
        assert await api.get(T) == []
        assert (await api.refused("PUT", "/admin/v2/persistent/public/none/t"))[0] == 404
        assert (await api.refused("DELETE", f"{T}/t?force=perhaps"))[0] == 400
        assert (await api.refused("PUT", f"{T}/t-partition-0"))[0] == 412

    with_api(story)


def test_reading_a_missing_topic_does_not_create_it() -> None:
    async def story(api: AdminApi) -> None:
        for path in (
            "stats",
            "internalStats",
            "internal-info",
            "subscriptions",
            "lastMessageId",
            "partitions",
        ):
            assert await api.refused("GET", f"{T}/t/{path}") == MISSING
        assert await api.get(T) == []

    with_api(story)


def test_partitioned_topics() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/p/partitions", 2)
        assert await api.get(f"{T}/p/partitions") == {"partitions": 2, "deleted": False}
        assert (await api.refused("PUT", f"{T}/p/partitions", 2))[0] == 409
        assert (await api.refused("PUT", f"{T}/p"))[0] == 409
        assert (await api.refused("DELETE", f"{T}/p"))[0] == 409
        assert (await api.refused("PUT", f"{T}/p-partition-1/partitions", 2))[0] == 412
        await api.done("POST", f"{T}/p/partitions", 3)
        assert (await api.refused("POST", f"{T}/p/partitions", 2))[0] == 422
        assert len(await api.get(T)) == 3
        await api.done("POST", f"{T}/p/createMissedPartitions")
        await api.publish("p-partition-2", b"x")
        await api.done("DELETE", f"{T}/p/partitions")
        assert (await api.refused("DELETE", f"{T}/p/partitions"))[0] == 404
        assert await api.get(T) == []
        await api.done("PUT", f"{T}/text/partitions", "2")
        assert (await api.get(f"{T}/text/partitions"))["partitions"] == 2
        body = {"partitions": 1, "properties": {"owner": "me"}}
        await api.done("PUT", f"{T}/q/partitions", body)
        assert await api.get(f"{T}/q/properties") == {"owner": "me"}
        for wrong, status in (
            (0, 406),
            (-1, 406),
            (10_001, 406),
            (True, 400),
            ("two", 400),
            ("0", 406),
            (None, 400),
        ):
            assert (await api.refused("PUT", f"{T}/r/partitions", wrong))[0] == status

    with_api(story)


def test_partitions_of_plain_and_future_topics() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        assert (await api.get(f"{T}/t/partitions"))["partitions"] == 0
        assert (await api.refused("PUT", f"{T}/t/partitions", 2))[0] == 409
        assert (await api.refused("POST", f"{T}/t/partitions", 2))[0] == 409
        assert (await api.refused("POST", f"{T}/none/partitions", 2))[0] == 409
        assert (await api.get(f"{T}/none/partitions?checkAllowAutoCreation=true"))["partitions"] == 0

    with_api(story)


def test_properties_outlive_an_unload() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/properties", {"a": "1", "b": "2"})
        await api.done("PUT", f"{T}/t/properties", {"b": "3"})
        await api.done("DELETE", f"{T}/t/properties?key=a")
        await api.done("PUT", f"{T}/t/unload")
        assert await api.get(f"{T}/t/properties") == {"b": "3"}
        assert (await api.refused("PUT", f"{T}/t/properties", {"b": 3}))[0] == 400
        assert (await api.refused("DELETE", f"{T}/t/properties"))[0] == 400
        await api.done("PUT", f"{T}/p/partitions", 1)
        await api.done("PUT", f"{T}/p/properties", {"a": "1"})
        await api.done("DELETE", f"{T}/p/properties?key=a")
        assert await api.get(f"{T}/p/properties") == {}

    with_api(story)


def test_a_new_topic_does_not_inherit_from_a_deleted_one() -> None:
    async def story(api: AdminApi) -> None:
        for create, body in (("t", None), ("p/partitions", 2)):
            topic = create.partition("/")[0]
            for force in ("", "?force=true"):
                await api.done("PUT", f"{T}/{create}", body)
                assert (await api.call("GET", f"{T}/{topic}/deduplicationEnabled")).status == 204
                await api.done("POST", f"{T}/{topic}/deduplicationEnabled", True)
                await api.done("DELETE", f"{T}/{create}{force}")

    with_api(story)


def test_termination_sends_producers_away_and_is_final() -> None:
    async def story(api: AdminApi) -> None:
        (_, last) = await api.publish("t", b"1", b"2")
        topic = await api.topic("t")
        connection = RecordingConnection()
        topic.attach_producer(Producer(producer_id=1, name="p", connection=connection))
        answer = await api.call("POST", f"{T}/t/terminate")
        assert answer.json == {"ledgerId": last.ledger_id, "entryId": last.entry_id, "partitionIndex": -1}
        assert connection.detached == 1
        assert topic.producers == {}
        assert (await api.get(f"{T}/t/internalStats"))["state"] == "Terminated"
        await api.done("PUT", f"{T}/p/partitions", 2)
        await api.publish("p-partition-1", b"1")
        assert (await api.refused("POST", f"{T}/p/terminate"))[0] == 405
        ended = (await api.call("POST", f"{T}/p/terminate/partitions")).json
        assert [part["partitionIndex"] for part in ended.values()] == [0, 1]
        assert (await api.topic("p-partition-0")).log.terminated is not None

    with_api(story)


def test_stats_have_the_fields_that_clients_read() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        topic = await api.topic("t")
        topic.attach_producer(
            Producer(
                producer_id=7,
                name="p",
                connection=RecordingConnection(),
                client_address="h:1",
                client_version="Pulsar-Test",
                connected_ms=1_700_000_000_000,
                properties={"k": "v"},
            )
        )
        await api.publish("t", b"1", b"2", b"3")
        api.clock.advance(2_000)
        stats = await api.get(f"{T}/t/stats")
        assert stats["msgInCounter"] == 3
        assert stats["msgRateIn"] == 1.5
        assert stats["bytesInCounter"] == topic.bytes_in
        assert stats["storageSize"] == topic.log.size_bytes > 0
        assert stats["deduplicationStatus"] == "Disabled"
        (producer,) = stats["publishers"]
        assert (producer["producerName"], producer["producerId"], producer["address"]) == ("p", 7, "h:1")
        assert producer["metadata"] == {"k": "v"}
        assert producer["clientVersion"] == "Pulsar-Test"
        assert producer["connectedSince"] == "2023-11-14T22:13:20.000+00:00"
        subscription = stats["subscriptions"]["s"]
        assert subscription["msgBacklog"] == 3
        assert subscription["backlogSize"] == stats["backlogSize"] == stats["storageSize"]
        assert subscription["type"] == "Exclusive"
        assert subscription["isDurable"] is True
        assert subscription["consumers"] == []
        assert subscription["dispatchState"] == "no-consumers"
        assert subscription["whyIdle"] == "no consumer is connected; the backlog is 3 entries"

    with_api(story)


def test_internal_stats_let_readers_plan_ranges() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        positions = await api.publish("t", *[b"x"] * 3, num_messages_in_batch=1)
        for _ in range(3):
            positions += await api.publish("t", b"x")
            await api.tasks.drain(5)  # a ledger that is full is left in the background
        info = await api.get(f"{T}/t/internalStats")
        assert info["numberOfEntries"] == info["entriesAddedCounter"] == 6
        assert info["state"] == "LedgerOpened"
        assert info["lastConfirmedEntry"] == str(positions[-1])
        assert [ledger["firstIndex"] for ledger in info["ledgers"] if ledger["entries"]] == [0, 4]
        assert sum(ledger["messages"] for ledger in info["ledgers"]) == info["messages"] == 6
        assert (info["firstIndex"], info["lastIndex"]) == (0, 5)
        assert all(ledger["offloaded"] is False for ledger in info["ledgers"])
        cursor = info["cursors"]["s"]
        assert cursor["readPosition"] == str(positions[0])
        assert cursor["numberOfEntriesSinceFirstNotAckedMessage"] == 6
        stored = await api.get(f"{T}/t/internal-info")
        assert [ledger["ledgerId"] for ledger in stored["ledgers"]] == [
            ledger["ledgerId"] for ledger in info["ledgers"]
        ]
        assert "s" in stored["cursors"]
        backlog = await api.get(f"{T}/t/backlog")
        assert backlog["cursorDetails"] == {"s": {"cursorBacklog": 6}}

    with_api(story)


def test_statistics_of_partitions_add_up() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/p/partitions", 2)
        await api.done("PUT", f"{T}/p/subscription/s", "earliest")
        await api.publish("p-partition-0", b"1")
        await api.publish("p-partition-1", b"1", b"2")
        for part in (0, 1):
            producer = Producer(producer_id=part, name="same", connection=RecordingConnection())
            (await api.topic(f"p-partition-{part}")).attach_producer(producer)
        stats = await api.get(f"{T}/p/partitioned-stats")
        assert [(entry["producerName"], entry["producerId"]) for entry in stats["publishers"]] == [
            ("same", 1)
        ]
        assert stats["metadata"] == {"partitions": 2, "deleted": False}
        assert stats["msgInCounter"] == 3
        assert stats["subscriptions"]["s"]["msgBacklog"] == 3
        assert stats["subscriptions"]["s"]["isDurable"] is True
        assert len(stats["partitions"]) == 2
        assert (await api.get(f"{T}/p/partitioned-stats?perPartition=false"))["partitions"] == {}
        internal = await api.get(f"{T}/p/partitioned-internalStats")
        assert [part["messages"] for part in internal["partitions"].values()] == [1, 2]
        await api.done("PUT", f"{T}/t")
        assert (await api.refused("GET", f"{T}/t/partitioned-stats"))[0] == 404
        assert (await api.refused("GET", f"{T}/p/stats"))[0] == 404

    with_api(story)


def test_trimming() -> None:
    async def story(api: AdminApi) -> None:
        for _ in range(6):
            await api.publish("t", b"x")
            await api.tasks.drain(5)  # a ledger that is full is left in the background
        await api.done("POST", f"{T}/t/trim")
        await api.tasks.drain(5)
        assert (await api.get(f"{T}/t/internalStats"))["firstIndex"] == 4

    with_api(story)


def test_schemas() -> None:
    async def story(api: AdminApi) -> None:
        path = "/admin/v2/schemas/public/default/t"
        assert (await api.refused("GET", f"{path}/schema"))[0] == 404
        body = {"type": "JSON", "schema": '{"type":"map","values":"int"}', "properties": {"a": "b"}}
        for _ in range(2):
            assert (await api.call("POST", f"{path}/schema", body)).json == {"version": {"version": 0}}
        assert (await api.refused("POST", f"{path}/schema", {**body, "type": "STRING"}))[0] == 409
        assert (await api.refused("POST", f"{path}/schema", {**body, "schema": "{"}))[0] == 422
        other = {**body, "schema": '{"type":"map","values":"long"}'}
        answer = (await api.call("POST", f"{path}/compatibility", other)).json
        assert answer["compatibility"] is False
        assert answer["schemaCompatibilityStrategy"] == "FULL"
        assert "cannot be read as int" in answer["reason"]
        assert (await api.call("POST", f"{path}/version", body)).json == {"version": 0}
        assert (await api.refused("POST", f"{path}/version", other))[0] == 404
        strategy = "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy"
        assert (await api.call("PUT", strategy, "ALWAYS_COMPATIBLE")).status == 204
        assert (await api.call("POST", f"{path}/compatibility", other)).json["compatibility"] is True
        types = {"key.schema.type": "AVRO", "value.schema.type": "STRING"}
        pair = {"type": "KEY_VALUE", "schema": '{"key":"int","value":""}', "properties": types}
        answer = await api.call("POST", f"{path}/schema", pair)
        assert answer.json == {"version": {"version": 1}}
        assert (await api.get(f"{path}/schema/1"))["data"] == '{"key":"int","value":""}'
        first = await api.get(f"{path}/schema/0")
        assert first == {
            "version": 0,
            "type": "JSON",
            "timestamp": api.clock.now_ms(),
            "data": '{"type":"map","values":"int"}',
            "properties": {"a": "b"},
        }
        assert (await api.get(f"{path}/schema"))["type"] == "KEY_VALUE"
        versions = (await api.get(f"{path}/schemas"))["getSchemaResponses"]
        assert [version["version"] for version in versions] == [0, 1]
        assert (await api.refused("GET", f"{path}/schema/7"))[0] == 404
        assert (await api.refused("GET", f"{path}/schema/x"))[0] == 400
        assert (await api.refused("POST", f"{path}/schema", {"type": "XML"}))[0] == 400
        assert (await api.refused("POST", f"{path}/schema", {**body, "properties": 1}))[0] == 400
        assert (await api.call("DELETE", f"{path}/schema")).json == {"version": 2}
        assert (await api.refused("GET", f"{path}/schema"))[0] == 404
        assert (await api.get(f"{path}/schema/0"))["version"] == 0
        await api.call("DELETE", f"{path}/schema?force=true")
        assert (await api.refused("GET", f"{path}/schema/0"))[0] == 404

    with_api(story)


def test_what_is_connected_keeps_a_topic() -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        producer = Producer(producer_id=1, name="p", connection=RecordingConnection())
        topic.attach_producer(producer)
        assert await api.refused("DELETE", f"{T}/t") == (
            412,
            "Topic has 1 client connected Including 0 consumers, 1 producers, and 0 replicators.",
        )
        topic.detach_producer(producer)
        await api.done("DELETE", f"{T}/t")

    with_api(story)


def test_a_partitioned_topic_goes_with_idle_subscriptions() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/p/partitions", 2)
        await api.done("PUT", f"{T}/p/subscription/s")
        await api.done("DELETE", f"{T}/p/partitions")
        assert (await api.refused("DELETE", f"{T}/p/partitions"))[0] == 404

    with_api(story)


def test_peeking_makes_a_subscription_that_is_not_there() -> None:
    async def story(api: AdminApi) -> None:
        await api.publish("t", b"first", b"second")
        peeked = await api.call("GET", f"{T}/t/subscription/new/position/2")
        assert (peeked.status, peeked.body) == (200, b"second")
        assert await api.get(f"{T}/t/subscriptions") == ["new"]
        assert await api.refused("GET", f"{T}/t/subscription/new/position/3") == (404, "Message not found")

    with_api(story)
