"""One call too many is answered 503; probes are answered all the same."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from magnetar.admin.calls import call_places
from magnetar.admin.calls.call_places import CallPlaces

Message = MutableMapping[str, Any]


class World:
    """An application whose calls end when they are told to."""

    def __init__(self, per_second: int = 0) -> None:
        self.go_on = asyncio.Event()
        self.now_ms = 0
        self.places = CallPlaces(self._app, per_second, lambda: self.now_ms)

    async def _app(self, scope: Message, receive: Any, send: Any) -> None:
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200})

    def call(self, path: str, address: str) -> asyncio.Task[int]:
        return asyncio.ensure_future(self._call(path, address))

    async def _call(self, path: str, address: str) -> int:
        told: list[Message] = []

        async def receive() -> Message:
            return {}

        async def send(message: Message) -> None:
            told.append(message)

        await self.places({"type": "http", "path": path, "client": (address, 1)}, receive, send)
        return int(told[0]["status"])


def test_places_in_all_of_an_address_and_of_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_places, "_CALLS_MAX", 3)
    monkeypatch.setattr(call_places, "_CALLS_PER_ADDRESS_MAX", 2)

    async def story() -> None:
        world = World()
        calls = [world.call("/admin/v2/tenants", address) for address in "aaabb"]
        probes = [world.call("/metrics", "a"), world.call("/admin/v2/brokers/ready/", "c")]
        await asyncio.sleep(0)
        world.go_on.set()
        assert await asyncio.gather(*calls) == [200, 200, 503, 200, 503]
        assert await asyncio.gather(*probes) == [200, 200]
        assert await world.call("/admin/v2/tenants", "a") == 200

    asyncio.run(story())


def test_probes_beyond_their_places_take_those_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_places, "_PROBES_MAX", 1)
    monkeypatch.setattr(call_places, "_CALLS_MAX", 1)

    async def story() -> None:
        world = World()
        probes = [world.call("/metrics", "a") for _ in range(3)]
        await asyncio.sleep(0)
        world.go_on.set()
        assert await asyncio.gather(*probes) == [200, 200, 503]

    asyncio.run(story())


def test_an_address_has_a_rate_and_probes_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_places, "_ADDRESSES_MAX", 2)

    async def story() -> None:
        world = World(per_second=2)
        world.go_on.set()
        tenants = "/admin/v2/tenants"
        assert [await world.call(tenants, "a") for _ in range(3)] == [200, 200, 429]
        assert await world.call(tenants, "b") == 200
        assert await world.call("/metrics", "a") == 200
        world.now_ms = 500
        assert [await world.call(tenants, "a") for _ in range(2)] == [200, 429]
        assert await world.call(tenants, "c") == 200
        assert list(world.places._rates) == ["a", "c"], "who called longest ago is forgotten"

    asyncio.run(story())
