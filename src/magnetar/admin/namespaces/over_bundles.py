"""Calls about all topics of a namespace, when several brokers serve them: each owner does its bundles."""

from __future__ import annotations

import functools
from dataclasses import replace
from urllib.parse import quote

from magnetar.admin.calls.call import Call, Handler
from magnetar.admin.calls.errors import OtherBrokerError
from magnetar.admin.calls.other_brokers import BrokerCall
from magnetar.admin.calls.owners_asked import OwnersAsked
from magnetar.base.names import NON_PERSISTENT, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.records import BrokerUrls


def spread_over_bundles(whole: Handler) -> Handler:
    """A handler for a POST about all topics of a namespace, or of the bundle in its path.

    Owners of bundles with topics do the same for theirs, other brokers before this one: when one of them
    fails, nothing is done here. Bundles without an owner come here.
    """

    @functools.wraps(whole)
    async def called(call: Call) -> object:
        owners = call.broker.owners
        if owners is None or "bundle" in call.params:
            return await whole(call)
        places = await _places(call, owners)
        if all(broker is None for broker in places.values()):
            return await whole(call)
        asked = OwnersAsked(call, places)

        def question(bundle: Bundle) -> BrokerCall:
            return BrokerCall("POST", _path(call, bundle))

        async def here(bundle: Bundle) -> object:
            return await whole(replace(call, params={**call.params, "bundle": bundle.range_name}))

        await asked.each(question, here, [part for part in asked.parts if not asked.is_here(part)])
        await asked.each(question, here, filter(asked.is_here, asked.parts))
        return None

    return called


async def _places(call: Call, owners: Owners) -> dict[Bundle, BrokerUrls | None]:
    """The bundles with topics, and their brokers."""
    found: dict[Bundle, BrokerUrls | None] = {}
    await call.broker.policies.namespace(call.namespace())
    for name in await call.broker.topics_of(call.namespace()):
        bundle = await owners.bundle_of(name)
        if bundle not in found:
            found[bundle] = (await owners.locate_bundle(bundle, authoritative=True)).urls
    return found


def _path(call: Call, bundle: Bundle) -> str:
    """The path of the same call about one bundle."""
    path = call.path.replace("{namespace}", f"{{namespace}}/{bundle.range_name}")
    for param, value in call.params.items():
        path = path.replace(f"{{{param}}}", quote(value, safe=""))
    return path


async def unstored_elsewhere(call: Call) -> list[TopicName]:
    """The non-persistent topics of the path's namespace that other brokers have loaded: only these know of
    them. Raises OtherBrokerError when one of them does not say."""
    owners = call.broker.owners
    if owners is None:
        return []
    others = {key: each.urls for key, each in owners.peers.reports.items() if key != owners.broker_id}
    if not others:
        return []
    path = f"/admin/v2/namespaces/{call.namespace()}/topics?mode=NON_PERSISTENT"

    async def here(broker_id: str) -> None:
        raise AssertionError(f"{broker_id} is another one")

    answers = await OwnersAsked(call, others).each(lambda _: BrokerCall("GET", path), here, others)
    found: list[TopicName] = []
    for broker_id, answer in answers.items():
        if not isinstance(answer, list):
            raise OtherBrokerError(503, f"broker {broker_id} does not list its {NON_PERSISTENT} topics")
        found += [TopicName.parse(str(name)) for name in answer]
    return found
