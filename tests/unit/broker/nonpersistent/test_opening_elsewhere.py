"""Non-persistent topics on a cluster of several brokers: one is open only where its bundle is."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.limits.limits import Limits
from support.admin_api import AdminApi
from support.shared_cluster import OtherBroker, on_a_shared_cluster, owners_of

NAME = TopicName.parse("non-persistent://public/default/t")


def test_a_topic_whose_bundle_leaves_while_it_is_opened_is_not_found_later() -> None:
    async def story(api: AdminApi, _: OtherBroker) -> None:
        await owners_of(api).require([NAME])
        bundle = await owners_of(api).bundle_of(NAME)
        limits_of = api.broker.nonpersistent._limits_of

        async def leaves(name: TopicName) -> Limits:
            limits = await limits_of(name)
            await owners_of(api).move(bundle)
            return limits

        api.broker.nonpersistent._limits_of = leaves
        for _attempt in range(2):
            with pytest.raises(ServiceNotReadyError, match="not served by this broker"):
                await api.broker.any_topic(NAME)
        assert api.broker.nonpersistent.find(NAME) is None

    on_a_shared_cluster(story)


def test_a_topic_of_another_broker_is_not_opened() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await other.own_bundle_of(NAME)
        with pytest.raises(ServiceNotReadyError, match="look it up again"):
            await api.broker.any_topic(NAME)
        assert not api.broker.nonpersistent.topics

    on_a_shared_cluster(story)
