"""Racks of bookies, as Pulsar keeps them."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.bookkeeper.racks import UNKNOWN_RACK, BookieRacks, RacksError, decode_racks
from magnetar.metadata.memory import MemoryMetadataStore

VALUE = (
    b'{"default": {"10.0.0.1:3181": {"rack": "/east/r1", "hostname": "h1"}},'
    b' "other": {"10.0.0.2:3181": {"rack": "/r2"}, "10.0.0.3:3181": {"rack": null}}}'
)


def test_groups_are_one() -> None:
    assert decode_racks(VALUE) == {"10.0.0.1:3181": "/east/r1", "10.0.0.2:3181": "/r2"}
    assert decode_racks(b"") == decode_racks(b"{}") == {}


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"default": 7}', b'{"default": {"b": "/r"}}', b"\xff"])
def test_damage_is_said(value: bytes) -> None:
    with pytest.raises(RacksError):
        decode_racks(value)


def test_they_stay_as_they_were_while_damaged() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        racks = BookieRacks(store, "/bookies")
        await racks.load()
        assert not racks.any_known
        await store.put("/bookies", VALUE)
        await racks.load()
        await store.put("/bookies", b"{")
        with pytest.raises(RacksError):
            await racks.load()
        assert racks.of("10.0.0.2:3181") == "/r2"
        assert racks.of("10.0.0.3:3181") == UNKNOWN_RACK
        await store.close()

    asyncio.run(story())
