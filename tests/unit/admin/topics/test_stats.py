"""Statistics over HTTP: what a caller may leave out, what expired, when, and whose broker it is."""

from __future__ import annotations

import asyncio

from magnetar.admin.topics.aggregation import aggregate
from magnetar.broker.topic.producer import Producer
from support.admin_api import AdminApi, RecordingConnection, T, with_api


def test_what_is_not_asked_for_is_left_out_and_the_oldest_message_is_found() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        await api.done("PUT", f"{T}/t/subscription/idle", "latest")
        producer = Producer(producer_id=1, name="p", connection=RecordingConnection())
        (await api.topic("t")).attach_producer(producer)
        await api.publish("t", b"1")
        first_ms = api.clock.now_ms()
        api.clock.advance(5_000)
        await api.publish("t", b"2")
        await api.done("POST", f"{T}/t/subscription/idle/skip_all")
        stats = await api.get(f"{T}/t/stats")
        assert [each["producerName"] for each in stats["publishers"]] == ["p"]
        assert stats["subscriptions"]["s"]["backlogSize"] == stats["storageSize"]
        assert stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == 0
        asked = "subscriptionBacklogSize=false&getEarliestTimeInBacklog=true&excludePublishers=true"
        stats = await api.get(f"{T}/t/stats?{asked}")
        assert stats["publishers"] == []
        assert stats["subscriptions"]["s"]["backlogSize"] == -1
        assert stats["backlogSize"] == stats["storageSize"]
        assert stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == first_ms
        assert stats["subscriptions"]["idle"]["earliestMsgPublishTimeInBacklog"] == -1
        assert stats["earliestMsgPublishTimeInBacklogs"] == first_ms
        assert (await api.refused("GET", f"{T}/t/stats?excludeConsumers=perhaps"))[0] == 400

    with_api(story)


def test_what_expired_is_counted() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/subscription/s", "earliest")
        await api.publish("t", b"1", b"2")
        api.clock.advance(10_000)
        await api.publish("t", b"3")
        await api.done("POST", f"{T}/t/subscription/s/expireMessages/5")
        subscription = (await api.get(f"{T}/t/stats"))["subscriptions"]["s"]
        assert (subscription["msgBacklog"], subscription["totalMsgExpired"]) == (1, 2)
        assert subscription["msgRateExpired"] == 0.2
        assert subscription["lastExpireTimestamp"] == api.clock.now_ms()
        assert subscription["lastMarkDeleteAdvancedTimestamp"] == api.clock.now_ms()

    with_api(story)


def test_a_broker_is_named_by_its_own_id_and_a_topic_by_when_it_came_to_be() -> None:
    """The id was the host of the request; the time was that of the last load."""

    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.publish("t", b"1")
        created_ms = (await api.get(f"{T}/t/stats"))["topicCreationTimeStamp"]
        api.clock.advance(60_000)
        await api.done("PUT", f"{T}/t/unload")
        stats = await api.get(f"{T}/t/stats")
        assert stats["topicCreationTimeStamp"] == created_ms
        assert stats["ownerBroker"] == "127.0.0.1:8080"
        for host in ("localhost", "127.0.0.1:9"):
            answer = await api.call("GET", "/admin/v2/brokers/leaderBroker", headers={"host": host})
            assert answer.json["brokerId"] == "127.0.0.1:8080"

    with_api(story)


def test_times_and_what_was_not_asked_for_do_not_add_up() -> None:
    times = ("lastAckedTimestamp", "earliestMsgPublishTimeInBacklog", "backlogSize")

    def part(*values: int) -> dict[str, object]:
        shown = {"type": "Shared", "consumers": [], **dict(zip(times, values, strict=True))}
        return {"publishers": [], "subscriptions": {"s": shown}, "deduplicationStatus": "Disabled"}

    merged = aggregate([part(5, 7, -1), part(9, -1, -1), part(0, 3, -1)])["subscriptions"]["s"]
    assert [merged[key] for key in times] == [9, 3, -1]


def test_statistics_of_very_many_topics_are_made_in_turns() -> None:
    """Those of 12,000 topics stopped the loop for 0.6 s."""
    count = 120

    async def story(api: AdminApi) -> None:
        turns = 0
        assert await api.get("/admin/v2/broker-stats/topics") == {}
        for number in range(count):
            await api.topic(f"persistent://public/default/t{number}")

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await api.done("PUT", "/admin/v2/namespaces/public/other")
        await api.topic("persistent://public/other/t")
        beside = asyncio.create_task(others())
        for path, turns_min in (("topics", count // 50), ("metrics", 0)):
            turns = 0
            found = await api.get(f"/admin/v2/broker-stats/{path}")
            assert turns >= turns_min
            if path == "metrics":
                assert found[0]["metrics"]["brk_topics_count"] == count + 1
                continue
            assert [list(of["persistent"]) for of in found["public/other"].values()] == [
                ["persistent://public/other/t"]
            ]
            topics = {
                name: stats
                for bundle in found["public/default"].values()
                for name, stats in bundle["persistent"].items()
            }
            assert sorted(topics) == sorted(f"persistent://public/default/t{n}" for n in range(count))
            assert topics["persistent://public/default/t7"]["subscriptions"] == {}
        beside.cancel()

    with_api(story)
