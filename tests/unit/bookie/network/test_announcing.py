"""A bookie's registration says whether it is read-only, whatever happens while it is changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from magnetar.bookie.network.node import BookieNode, NodeOptions
from magnetar.metadata.bookkeeper.registry import BookieRegistry


class SlowRegistry:
    """Registers when it may; the last answer is what clients find."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.asked: list[bool] = []
        self.found = False

    async def register(self, bookie: object, *, read_only: bool) -> None:
        self.asked.append(read_only)
        await self.may.wait()
        self.found = read_only


def test_a_disk_that_has_space_again_while_it_is_announced_as_full_is_announced_too() -> None:
    """The registration said read-only, the bookie believed it said writable, and so it stayed."""

    async def story() -> None:
        registry = SlowRegistry()
        options = NodeOptions(data=Path("/d"))
        node = BookieNode(options, cast("BookieRegistry", registry), cast("Any", None))
        node.bookie_id, node.port = "b:1", 1
        node.read_only = True
        full = asyncio.ensure_future(node._announce())
        await asyncio.sleep(0)
        assert registry.asked == [True]
        node.read_only = False
        freed = asyncio.ensure_future(node._announce())
        await asyncio.sleep(0)
        registry.may.set()
        await asyncio.gather(full, freed)
        assert registry.asked == [True, False]
        assert not registry.found

    asyncio.run(story())
