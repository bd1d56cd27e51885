"""Brokers that operators drain: they get no bundles, and the table says at once when that ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.broker.ownership.records import BrokerReport, drain_path
from magnetar.metadata import keys
from support.many_brokers import OTHER, OneOfSeveral, urls_of, with_one_of_several

UNLOAD = f"/admin/v2/namespaces/public/default/unload?destinationBroker={OTHER}"
REPORT = BrokerReport(urls_of(OTHER))


@pytest.mark.parametrize("how", ["operator", "stop"])
def test_no_bundle_is_unloaded_to_a_broker_that_drains(how: str) -> None:
    async def story(api: OneOfSeveral) -> None:
        if how == "operator":
            await api.store.put(drain_path(OTHER), b"")
        await api.other_is_there(replace(REPORT, draining=how == "stop"))
        assert await api.refused("PUT", UNLOAD) == (412, "broker b:8080 drains: it takes no bundle")
        await api.store.put(keys.broker("b:8080"), REPORT.encode())
        if how == "operator":
            await api.store.delete(drain_path(OTHER))
        await api.owners.peers.load()
        await api.done("PUT", UNLOAD)

    with_one_of_several(story)


def test_the_report_says_nothing_of_an_operators_drain() -> None:
    async def story(api: OneOfSeveral) -> None:
        own = api.owners.broker_id
        await api.store.put(drain_path(own), b"")
        await api.owners.peers.load()
        assert api.owners.draining
        await api.owners.reporting.show()
        await api.store.delete(drain_path(own))
        await api.owners.peers.load()
        assert [report.broker_id for report in api.owners.peers.able()] == [own]

    with_one_of_several(story)
