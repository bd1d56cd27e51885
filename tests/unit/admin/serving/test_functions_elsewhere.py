"""Calls about functions at a process that has none: another process of its machine has them."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from magnetar.admin.serving.elsewhere import url_of
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.siblings.siblings import Siblings
from support.admin_api import AdminApi
from support.shared_cluster import OtherBroker, on_a_shared_cluster, owners_of

FIRST = BrokerUrls(Addresses(http="http://first:8180", https="https://first:8543"))


def request(scheme: str, path: str) -> Request:
    return Request(
        {
            "type": "http",
            "method": "GET",
            "scheme": scheme,
            "server": ("a", 80),
            "path": path,
            "query_string": b"a=b",
            "headers": [],
        }
    )


@pytest.mark.parametrize(
    "path",
    ["/admin/v3/functions/public/default", "/admin/v3/packages/function/t/n", "/admin/v2/worker/cluster"],
)
def test_they_go_to_the_process_that_has_them(path: str) -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        own = owners_of(api).urls
        api.broker.siblings = Siblings(own, functions=FIRST)
        assert await url_of(api.broker, path, {}, request("http", path)) == f"http://first:8180{path}?a=b"
        assert await url_of(api.broker, path, {}, request("https", path)) == f"https://first:8543{path}?a=b"
        # The process that has them answers.
        api.broker.siblings = Siblings(own)
        assert await url_of(api.broker, path, {}, request("http", path)) is None

    on_a_shared_cluster(story)
