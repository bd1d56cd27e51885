"""The table of a partitioned topic is asked for at one broker, whichever gets the call."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from support.admin_api import AdminApi
from support.shared_cluster import OTHER_URL, OtherBroker, on_a_shared_cluster, owners_of

T = TopicName.parse("persistent://public/default/t")
PATH = "/admin/v2/persistent/public/default/t"


@pytest.mark.parametrize(
    ("method", "call"), [("GET", "lake"), ("POST", "lake/verify"), ("GET", "lake/verify")]
)
def test_what_was_requested_is_kept_by_the_owner_of_the_first_partition(method: str, call: str) -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", f"{PATH}/partitions", 3)
        other.join()
        bundle = await owners_of(api).bundle_of(T.with_partition(0))
        await owners_of(api).move(bundle)
        await other.own(bundle)
        answer = await api.call(method, f"{PATH}/{call}")
        assert (answer.status, answer.headers["location"]) == (307, f"{OTHER_URL}{PATH}/{call}")

    on_a_shared_cluster(story)
