"""URLs of metadata services."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.bookkeeper.ledger_layouts import LedgerLayout
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.opening import MetadataUrl, MetadataUrlError, open_metadata, parse_metadata_url


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("zk://a:1", MetadataUrl("zk", (("a", 1),))),
        ("zk://a:1,b/x/ledgers/", MetadataUrl("zk", (("a", 1), ("b", 2181)), root="/x/ledgers")),
        (
            "zk+hierarchical://a:1;b:2/ledgers",
            MetadataUrl("zk", (("a", 1), ("b", 2)), layout=LedgerLayout.HIERARCHICAL),
        ),
        ("zk+longhierarchical://a", MetadataUrl("zk", (("a", 2181),), layout=LedgerLayout.LONG_HIERARCHICAL)),
        ("zk+null://[::1]:5/l", MetadataUrl("zk", (("::1", 5),), root="/l")),
        ("etcd://[::1]", MetadataUrl("etcd", (("::1", 2379),))),
        ("sqlite:///var/m.db", MetadataUrl("sqlite", file="/var/m.db")),
        ("sqlite:m.db", MetadataUrl("sqlite", file="m.db")),
        ("memory:", MetadataUrl("memory")),
    ],
)
def test_urls_name_services(url: str, parsed: MetadataUrl) -> None:
    assert parse_metadata_url(url) == parsed


@pytest.mark.parametrize(
    "url",
    ["", "a:2181", "zk:a:1", "zk://", "zk://a:x", "zk://a:0", "zk+flatter://a", "etcd+flat://a", "ftp://a"],
)
def test_others_are_refused(url: str) -> None:
    with pytest.raises(MetadataUrlError):
        parse_metadata_url(url)


def test_a_store_is_opened() -> None:
    async def story() -> None:
        store = await open_metadata(parse_metadata_url("memory:"), ManualClock())
        assert isinstance(store, MemoryMetadataStore)
        await store.close()

    asyncio.run(story())
