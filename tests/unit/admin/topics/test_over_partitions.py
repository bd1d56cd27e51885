"""Calls about a topic whose partitions several brokers serve: what the owners are asked, what is made of
their answers, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from magnetar.admin.calls.owners_asked import ASKED_AT_ONCE
from magnetar.base.names import TopicName
from magnetar.metadata import keys
from magnetar.runtime.http_exchange import HttpAnswer
from support.admin_api import AdminApi, T
from support.partitions_elsewhere import PARTS, Asked, no_content, shown, stats_of, with_parts_elsewhere
from support.shared_cluster import OtherBroker, on_a_shared_cluster, owners_of


def test_statistics_are_put_together_from_all_brokers() -> None:
    async def story(api: AdminApi, asked: Asked, theirs: list[TopicName]) -> None:
        asked.answer = lambda _method, _path: shown(stats_of(messages=100))
        stats = await api.get(f"{T}/p/partitioned-stats?getPreciseBacklog=true")
        assert asked.calls == [("GET", f"{T}/{each.local}/stats?getPreciseBacklog=true") for each in theirs]
        assert list(stats["partitions"]) == [str(part) for part in PARTS]
        assert stats["msgInCounter"] == 8 - len(theirs) + 100 * len(theirs)
        assert stats["metadata"] == {"partitions": 8, "deleted": False}
        assert stats["subscriptions"]["far"]["msgBacklog"] == 3 * len(theirs)
        asked.answer = lambda _method, _path: shown({"entriesAddedCounter": 7})
        internal = await api.get(f"{T}/p/partitioned-internalStats")
        counters = {name: each["entriesAddedCounter"] for name, each in internal["partitions"].items()}
        assert counters == {str(part): 7 if part in theirs else 1 for part in PARTS}

    with_parts_elsewhere(story)


def test_an_owner_that_fails_is_named() -> None:
    async def story(api: AdminApi, asked: Asked, _: list[TopicName]) -> None:
        for failure, words in (
            (ConnectionRefusedError("refused"), "failed: refused"),
            (TimeoutError(), "no answer within 30 s"),
            (shown({"reason": "the disk is gone"}, 500), "failed: the disk is gone"),
            (HttpAnswer(200, "", b"<html>"), "failed: its answer is not JSON"),
            (HttpAnswer(307, "file:///etc", b""), "would show credentials"),
        ):
            asked.calls.clear()
            asked.answer = lambda _method, _path, failure=failure: failure  # type: ignore[misc]  # bound now
            status, reason = await api.refused("GET", f"{T}/p/partitioned-stats")
            assert status == 503
            assert reason.startswith("broker other:8080, which serves a part of this, failed")
            assert words in reason
        asked.answer = lambda _method, _path: shown({"reason": "not yours", "remedy": "ask"}, 403)
        answer = await api.call("GET", f"{T}/p/partitioned-stats")
        assert answer.status == 403
        assert answer.json == {"reason": "not yours", "remedy": "broker other:8080 says so; ask"}

    with_parts_elsewhere(story)


def test_the_callers_credentials_are_shown_and_nothing_else() -> None:
    async def story(api: AdminApi, asked: Asked, theirs: list[TopicName]) -> None:
        asked.answer = lambda _method, _path: shown(stats_of())
        sent = {"authorization": "Bearer abc", "cookie": "secret", "x-original-principal": "client"}
        await api.call("GET", f"{T}/p/partitioned-stats", headers=sent)
        told = {"authorization": "Bearer abc", "x-original-principal": "client"}
        assert asked.headers == [told] * len(theirs)

    with_parts_elsewhere(story)


def test_few_are_asked_at_once_and_none_after_a_failure() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        count = 10 * ASKED_AT_ONCE
        await api.done("PUT", f"{T}/wide/partitions", count)
        names = [TopicName.parse(f"persistent://public/default/wide-partition-{i}") for i in range(count)]
        for bundle in {await owners_of(api).bundle_of(name) for name in names}:
            await other.own(bundle)
        asked = Asked(api)
        asked.answer = lambda _method, _path: shown(stats_of())
        await api.get(f"{T}/wide/partitioned-stats")
        assert len(asked.calls) == count
        assert asked.most_at_once == ASKED_AT_ONCE
        asked.calls.clear()
        asked.answer = lambda _method, _path: ConnectionResetError("reset")
        assert (await api.refused("PUT", f"{T}/wide/unload"))[0] == 503
        assert len(asked.calls) == ASKED_AT_ONCE

    on_a_shared_cluster(story)


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("force", ["true", "false"])
def test_a_topic_is_deleted_with_the_partitions_of_others(force: str, used: bool) -> None:
    async def story(api: AdminApi, asked: Asked, theirs: list[TopicName]) -> None:
        def answer(method: str, _path: str) -> HttpAnswer:
            return shown(stats_of()) if method == "GET" else no_content()

        asked.answer = answer
        await api.done("DELETE", f"{T}/p/partitions?force={force}")
        deletions = [path for method, path in asked.calls if method == "DELETE"]
        # What was never used has no data that a client could miss.
        forced = "true" if force == "true" or not used else "false"
        assert deletions == [f"{T}/{each.local}?force={forced}" for each in theirs]
        assert asked.calls[-1][0] == "DELETE"
        assert len(asked.calls) == len(theirs) * (2 if force == "false" and used else 1)
        assert await api.get(f"{T}/partitioned") == []
        here = [part for part in PARTS if part not in theirs]
        assert not any([await api.logs.exists(part.log_name) for part in here])

    with_parts_elsewhere(story, used=used)


def test_a_topic_that_has_clients_elsewhere_is_kept_whole() -> None:
    async def story(api: AdminApi, asked: Asked, _: list[TopicName]) -> None:
        asked.answer = lambda _method, _path: shown(stats_of(producers=2))
        status, reason = await api.refused("DELETE", f"{T}/p/partitions")
        assert (status, reason.partition(" Including")[0]) == (412, "Topic has 2 clients connected")
        assert {method for method, _ in asked.calls} == {"GET"}
        assert all([await api.logs.exists(part.log_name) for part in PARTS])

    with_parts_elsewhere(story)


def test_a_deletion_that_failed_elsewhere_leaves_a_topic_that_can_be_used_and_deleted() -> None:
    async def story(api: AdminApi, _: Asked, __: list[TopicName]) -> None:
        marked: list[object] = []
        path = keys.partitioned_topic(PARTS[0].base)

        async def mark() -> object:
            return (await api.broker.policies.fresh_document(path) or {}).get("deleted")

        async def failing(_method: str, _url: str, _body: bytes, _headers: Mapping[str, str]) -> HttpAnswer:
            marked.append(await mark())
            raise ConnectionResetError("reset")

        api.other_brokers = failing
        assert (await api.refused("DELETE", f"{T}/p/partitions?force=true"))[0] == 503
        # The mark is there before the first is deleted.
        assert set(marked) == {True}
        assert await mark() is False
        assert (await api.get(f"{T}/p/partitions"))["partitions"] == 8
        assert all([await api.logs.exists(part.log_name) for part in PARTS])
        Asked(api)
        await api.done("DELETE", f"{T}/p/partitions?force=true")
        assert await api.get(f"{T}/partitioned") == []

    with_parts_elsewhere(story)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_no_partition_comes_into_being_while_another_broker_deletes_the_topic(domain: str) -> None:
    async def story(api: AdminApi, _: OtherBroker) -> None:
        at = T.replace("persistent", domain)
        await api.done("PUT", f"{at}/p/partitions", 8)
        name = TopicName.parse(f"{domain}://public/default/p")
        await owners_of(api).require([name.with_partition(0)])
        await api.broker.policies.mark_deleted(name, deleted=True)
        with pytest.raises(Exception, match="is being deleted; try again"):
            await api.broker.any_topic(name.with_partition(0))
        await api.broker.policies.mark_deleted(name, deleted=False)
        await api.broker.any_topic(name.with_partition(0))

    on_a_shared_cluster(story)


def test_compaction_and_truncation_reach_the_partitions_of_others() -> None:
    async def story(api: AdminApi, asked: Asked, theirs: list[TopicName]) -> None:
        for method, last in (("PUT", "compaction"), ("DELETE", "truncate")):
            asked.calls.clear()
            await api.done(method, f"{T}/p/{last}")
            assert asked.calls == [(method, f"{T}/{each.local}/{last}") for each in theirs]

    with_parts_elsewhere(story)


def test_explanations_of_all_brokers_are_one_list() -> None:
    async def story(api: AdminApi, asked: Asked, theirs: list[TopicName]) -> None:
        here = [part for part in PARTS if part not in theirs]
        for part in here:
            topic = await api.topic(str(part))
            await topic.subscription("s", initial_earliest=True, start=None, properties=None)
        asked.answer = lambda _method, path: shown([{"topic": path}])
        for last in ("explain", "subscription/s/explain"):
            found = await api.get(f"{T}/p/{last}")
            paths = {f"{T}/{each.local}/{last}" for each in theirs}
            assert {each["topic"] for each in found} == {*map(str, here), *paths}

    with_parts_elsewhere(story)
