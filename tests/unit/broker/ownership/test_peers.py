"""The table of brokers, and this broker's own record in it."""

from __future__ import annotations

import json

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.ownership.listing import owners_in
from magnetar.broker.ownership.place import HERE
from magnetar.broker.ownership.records import NAMESPACES, BrokerReport, owner_path
from magnetar.metadata import keys
from support.many_brokers import OTHER, OneOfSeveral, urls_of, with_one_of_several

LISTS = json.dumps({"advertisedListeners": [1], "webServiceUrl": "http://foreign:1"}).encode()
OF_ANOTHER_NAME = BrokerReport(urls_of("c:1")).encode()


@pytest.mark.parametrize("record", [b"", LISTS, OF_ANOTHER_NAME, b'{"numBundles":1e999}'])
def test_a_record_that_is_not_understood_keeps_no_other_out(
    record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.store.put(keys.broker("foreign:1"), record)
        await api.other_is_there()
        assert set(api.owners.peers.reports) == {"127.0.0.1:8080", OTHER}
        assert "the record of broker foreign:1 is not understood" in caplog.text

    with_one_of_several(story)


def test_an_owner_that_is_not_understood_is_no_error_of_others() -> None:
    async def story(api: OneOfSeveral) -> None:
        name = TopicName.parse("t")
        bundle = await api.owners.bundle_of(name)
        await api.store.put(owner_path(bundle), LISTS)
        await api.store.put(f"{NAMESPACES}/public/default/0xffffff00_0xffffffff", LISTS)
        assert await owners_in(api.store) == {}
        assert await api.owners._look_for(bundle, authoritative=True) is None
        await api.store.delete(owner_path(bundle))
        await api.store.delete(f"{NAMESPACES}/public/default/0xffffff00_0xffffffff")
        assert await api.owners.locate(name, authoritative=True) == HERE

    with_one_of_several(story)
