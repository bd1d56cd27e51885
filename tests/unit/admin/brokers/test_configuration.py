"""Settings that change while the broker runs, persistence, and sizes of backlogs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.base.ids import Position
from magnetar.broker import dynamic
from magnetar.broker.config import BrokerConfig
from magnetar.broker.inactive.policy import DeleteMode
from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.policies.creation import CreationRules
from magnetar.broker.policies.topic_settings import COPIES, copies_in_force
from magnetar.ledger.api import Copies
from magnetar.metadata import keys
from support.admin_api import AdminApi, T, with_api

C = "/admin/v2/brokers/configuration"
N = "/admin/v2/namespaces/public/default"


def test_a_setting_is_changed_kept_and_reset() -> None:
    async def story(api: AdminApi) -> None:
        assert "allowAutoSubscriptionCreation" in await api.get(C)
        assert await api.get(f"{C}/values") == {}
        topic = await api.topic("t")
        await api.done("POST", f"{C}/maxProducersPerTopic/3")
        await api.done("POST", f"{C}/allowAutoSubscriptionCreation/false")
        assert topic.limits.limits.producers_max == 3
        assert not (await api.broker.creation(topic.name)).subscriptions
        changed = {"maxProducersPerTopic": "3", "allowAutoSubscriptionCreation": "false"}
        assert await api.get(f"{C}/values") == changed
        assert await api.broker.store.get(keys.CONFIGURATION) is not None
        shown = await api.get(f"{C}/runtime")
        assert changed.items() <= shown.items()
        assert set(dynamic.NAMES) <= set(shown)
        await api.done("DELETE", f"{C}/maxProducersPerTopic")
        await api.done("DELETE", f"{C}/maxConsumersPerTopic")
        assert topic.limits.limits.producers_max == 0
        assert await api.get(f"{C}/values") == {"allowAutoSubscriptionCreation": "false"}

    with_api(story)


def test_other_settings_and_other_values_are_refused() -> None:
    async def story(api: AdminApi) -> None:
        for path in ("clusterName/x", "nothing/1", "maxProducersPerTopic/many", "allowAutoTopicCreation/yes"):
            assert (await api.refused("POST", f"{C}/{path}"))[0] == 412
        assert (await api.refused("DELETE", f"{C}/clusterName"))[0] == 412

    with_api(story)


def test_a_started_broker_finds_what_was_changed() -> None:
    async def story(api: AdminApi) -> None:
        await api.broker.policies.update_configuration(
            lambda document: document.update({"allowAutoTopicCreation": "false", "of": "a later version"})
        )
        await api.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        assert not api.broker.config.creation.topics

    with_api(story)


@pytest.mark.parametrize("name", dynamic.NAMES)
def test_what_is_shown_can_be_set(name: str) -> None:
    told = BrokerConfig()
    text = dynamic.shown(told)[name]
    assert dynamic.is_valid(name, text)
    assert dynamic.overridden(told, {name: text}) == told
    assert not dynamic.is_valid(name, "no value")
    assert dynamic.overridden(told, {name: "no value"}) == told


def test_settings_that_make_up_one_field() -> None:
    told = BrokerConfig(creation=CreationRules(partitions=3))
    assert dynamic.overridden(told, {"defaultNumPartitions": "5"}).creation.partitions == 5
    other = dynamic.overridden(told, {"allowAutoTopicCreationType": "non-partitioned"})
    assert other.creation.partitions == 0
    policy = QuotaPolicy.REFUSE.value
    quotas = {"backlogQuotaDefaultLimitBytes": "10", "backlogQuotaDefaultRetentionPolicy": policy}
    assert dynamic.overridden(told, quotas).limits.quotas == (
        BacklogQuota(QuotaKind.SIZE, 10, QuotaPolicy.REFUSE),
    )
    mode = {"brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up"}
    assert dynamic.overridden(told, mode).inactive.mode is DeleteMode.CAUGHT_UP


def test_persistence_promises_one_copy() -> None:
    one = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}

    async def story(api: AdminApi) -> None:
        assert (await api.call("GET", f"{N}/persistence")).status == 204
        await api.done("POST", f"{N}/persistence", {**one, "managedLedgerMaxMarkDeleteRate": 1})
        found = await api.get(f"{N}/persistence")
        assert found == {**one, "managedLedgerMaxMarkDeleteRate": 1.0}
        assert (await api.refused("POST", f"{N}/persistence", {**one, "bookkeeperEnsemble": 2}))[0] == 412
        assert (await api.refused("POST", f"{N}/persistence", None))[0] == 400
        assert (await api.refused("POST", f"{N}/persistence", {"bookkeeperEnsemble": "x"}))[0] == 400
        await api.done("DELETE", f"{N}/persistence")
        assert (await api.call("GET", f"{N}/persistence")).status == 204

    with_api(story)


def test_persistence_promises_what_bookies_can_keep() -> None:
    async def story(api: AdminApi) -> None:
        api.broker.config = replace(api.broker.config, copies=Copies(2, 2, 2))
        said = dict(zip(COPIES, (3, 3, 2), strict=True))
        await api.done("POST", f"{N}/persistence", said)
        assert await api.get(f"{N}/persistence") == {**said, "managedLedgerMaxMarkDeleteRate": -1.0}
        await api.done("POST", f"{N}/persistence", {COPIES[2]: 1})
        found = await api.get(f"{N}/persistence")
        assert [found[name] for name in COPIES] == [2, 2, 1]
        for copies in ((2, 3, 2), (3, 2, 3), (1, 2, 2)):
            wrong = dict(zip(COPIES, copies, strict=True))
            status, reason = await api.refused("POST", f"{N}/persistence", wrong)
            assert status == 400
            ensemble, written, acknowledged = copies
            expected = (
                f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({written}) >= AckQuorum ({acknowledged})"
            )
            assert reason == expected

    with_api(story)


def test_a_topic_lies_on_as_many_bookies_as_its_policy_says() -> None:
    told = Copies(2, 2, 2)
    of_namespace = {"persistence": dict(zip(COPIES, (3, 3, 2), strict=True))}
    assert copies_in_force(told, {}, {}) is None
    assert copies_in_force(told, {}, of_namespace) == Copies(3, 3, 2)
    assert copies_in_force(told, {"persistence": {COPIES[0]: 2}}, of_namespace) is None


def test_the_size_of_what_lies_behind_a_message() -> None:
    async def story(api: AdminApi) -> None:
        positions = await api.publish("t", *(b"0123456789" for _ in range(4)))
        log = (await api.topic("t")).log

        async def behind(position: Position) -> object:
            body = {"ledgerId": position.ledger_id, "entryId": position.entry_id}
            return (await api.call("PUT", f"{T}/t/backlogSize", body)).json

        assert await behind(positions[-1]) == 0
        assert await behind(positions[1]) == log.size_bytes // 2
        assert await behind(Position(-1, -1)) == log.size_bytes
        assert (await api.refused("PUT", f"{T}/none/backlogSize", {"ledgerId": 0, "entryId": 0}))[0] == 404
        await api.done("PUT", f"{T}/p/partitions", 2)
        assert (await api.refused("PUT", f"{T}/p/backlogSize", {"ledgerId": 0, "entryId": 0}))[0] == 405

    with_api(story)


def test_entry_filters_are_chosen_among_those_that_there_are() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        for path in (f"{N}/entryFilters", f"{T}/t/entryFilters"):
            assert (await api.call("GET", path)).status == 204
            assert (await api.refused("POST", path, 1))[0] == 400
            for names, why in (
                ("", "entryFilterNames can't be empty. To remove entry filters use the remove method."),
                ("com.company.JavaFilter", "Entry filter 'com.company.JavaFilter' not found"),
                ("expression,even", "Entry filter 'even' not found"),
            ):
                answer = await api.call("POST", path, {"entryFilterNames": names})
                assert (answer.status, answer.reason) == (400, why)
                assert "there are expression" in answer.json["remedy"]
            await api.done("POST", path, {"entryFilterNames": " expression"})
            assert await api.get(path) == {"entryFilterNames": "expression"}
        await api.done("DELETE", f"{T}/t/entryFilters")
        assert await api.get(f"{T}/t/entryFilters?applied=true") == {"entryFilterNames": "expression"}

    with_api(story)


def test_settings_that_pulsar_knows_are_kept() -> None:
    async def story(api: AdminApi) -> None:
        names = await api.get(C)
        assert "loadBalancerDebugModeEnabled" in names
        assert set(dynamic.NAMES) < set(names)
        await api.done("POST", f"{C}/loadBalancerDebugModeEnabled/false")
        assert await api.get(f"{C}/values") == {"loadBalancerDebugModeEnabled": "false"}
        assert api.broker.config == BrokerConfig(cluster=api.broker.config.cluster)
        await api.done("DELETE", f"{C}/loadBalancerDebugModeEnabled")
        assert await api.get(f"{C}/values") == {}
        assert await api.refused("POST", f"{C}/clusterName/x") == (
            412,
            "Can't update non-dynamic configuration",
        )

    with_api(story)
