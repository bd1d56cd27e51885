"""The policy of delayed delivery, over HTTP and in force."""

from __future__ import annotations

import pytest

from magnetar.broker.limits.limits import Limits, effective
from support.admin_api import AdminApi, with_api

N = "/admin/v2/namespaces/public/default/delayedDelivery"
T = "/admin/v2/persistent/public/default/t/delayedDelivery"
OFF = {"active": False, "tickTime": 500, "maxDeliveryDelayInMillis": 0}


@pytest.mark.parametrize("path", [N, T])
def test_it_is_set_read_and_removed(path: str) -> None:
    async def story(api: AdminApi) -> None:
        await api.topic("t")
        await api.done("POST", path, OFF)
        assert await api.get(path) == OFF
        await api.done("DELETE", path)
        assert (await api.call("GET", path)).status == 204

    with_api(story)


@pytest.mark.parametrize("value", [[], {"active": "on"}, {"active": 1.5}, {"active": True, "tickTime": True}])
def test_bodies_are_checked(value: object) -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.refused("POST", N, value))[0] in (400, 412)

    with_api(story)


def test_the_topics_own_wins_over_the_namespaces() -> None:
    off = {"delayed_delivery_policies": OFF}
    on = {"delayed_delivery_policies": {"active": True, "tickTime": 1}}
    assert effective({}, {}, Limits(), "c").delayed_delivery
    assert not effective({}, off, Limits(), "c").delayed_delivery
    assert effective(on, off, Limits(), "c").delayed_delivery
    assert not effective(off, on, Limits(), "c").delayed_delivery
