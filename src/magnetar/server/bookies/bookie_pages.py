"""The pages on a bookie's HTTP port, with Apache's paths about the bookie itself.

Apache's bookies also have paths about the whole cluster. They are not offered here, but by
`magnetar autorecovery` and Apache's shell.

Source: BookKeeper's HTTP admin API (paths, fields, status codes).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from magnetar.base.errors import MetadataError
from magnetar.bookie import store_metrics as store_metrics
from magnetar.bookie.network import bookie_metrics as bookie_metrics
from magnetar.bookie.network.node import BookieNode
from magnetar.bookie.network.traffic import Traffic
from magnetar.metadata.bookkeeper.registry import LiveBookies, RegisteredBookie
from magnetar.observability import logs, process
from magnetar.observability.metrics import CONTENT_TYPE, Registry
from magnetar.runtime.threads import in_thread
from magnetar.server.bookies.member_pages import Page, PageTable, json_page

_FILE_TYPES: Final = ("journal", "entrylog", "index")


class OtherBookies(Protocol):
    """The part of `BookieRegistry` that the pages use."""

    async def bookies(self) -> LiveBookies:
        """The registered bookies."""

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        """The record of a registered bookie; None when it is not registered."""


class BookiePages:
    """The pages of one bookie; the object also starts to count its traffic."""

    def __init__(self, node: BookieNode, others: OtherBookies, *, changes: bool = False) -> None:
        """`changes`: take calls that change something even if the bookie demands something of its clients."""
        self._node = node
        self._others = others
        traffic = node.server.traffic = node.server.traffic or Traffic()
        self._registry = Registry()
        self._registry.collector(process.collect)
        self._registry.collector(logs.collect)
        self._registry.collector(partial(bookie_metrics.collect, node, traffic))
        self._registry.collector(partial(store_metrics.collect, node.server.entries.stores))
        pages = {
            ("GET", "/heartbeat"): self._heartbeat,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/api/v1/bookie/info"): self._info,
            ("GET", "/api/v1/bookie/state"): self._state,
            ("GET", "/api/v1/bookie/state/readonly"): self._read_only,
            ("PUT", "/api/v1/bookie/state/readonly"): self._ask_read_only,
            ("GET", "/api/v1/bookie/is_ready"): self._is_ready,
            ("GET", "/api/v1/bookie/list_disk_file"): self._files,
            ("GET", "/api/v1/bookie/list_bookies"): self._bookies,
            ("GET", "/api/v1/bookie/gc"): self._collecting,
            ("PUT", "/api/v1/bookie/gc"): self._collect,
        }
        self._table = PageTable(
            pages,
            takes_changes=changes or node.server.access.is_open,
            why_not="this bookie demands TLS or credentials of its clients",
        )

    async def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Page:
        """See `PageTable`."""
        return await self._table.answer(method, path, query, body)

    async def _heartbeat(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return Page(200, b"OK\n")

    async def _metrics(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return Page(200, "".join(self._registry.scrape()).encode(), CONTENT_TYPE)

    async def _info(self, _query: Mapping[str, str], _body: bytes) -> Page:
        capacity, free = self._node.server.entries.disk_bytes()
        return json_page({"freeSpace": free, "totalSpace": capacity})

    async def _state(self, _query: Mapping[str, str], _body: bytes) -> Page:
        running = not self._node.has_failed
        return json_page(
            {
                "running": running,
                "readOnly": self._node.read_only,
                "shuttingDown": not running,
                "availableForHighPriorityWrites": running,
            }
        )

    async def _read_only(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return json_page({"readOnly": self._node.read_only})

    async def _ask_read_only(self, query: Mapping[str, str], body: bytes) -> Page:
        try:
            wanted = json.loads(body)["readOnly"]
        except (ValueError, KeyError, TypeError, RecursionError):
            wanted = None
        if not isinstance(wanted, bool):
            return Page(400, b'the body must be {"readOnly": true} or {"readOnly": false}\n')
        await self._node.ask_read_only(read_only=wanted)
        return await self._read_only(query, body)

    async def _is_ready(self, _query: Mapping[str, str], _body: bytes) -> Page:
        if self._node.has_failed:
            return Page(503, b"the disk has failed\n")
        return Page(200)

    async def _files(self, query: Mapping[str, str], _body: bytes) -> Page:
        chosen = query.get("file_type")
        types = (chosen,) if chosen in _FILE_TYPES else _FILE_TYPES
        # Entries are written once: the segments are journal and entry log, and have the index in them.
        names = await in_thread(self._segments)
        return json_page({f"{each} files": _tabbed(() if each == "index" else names) for each in types})

    def _segments(self) -> list[str]:
        stores = self._node.server.entries.stores
        return sorted(path.name for store in stores for path in store.directory.rglob("*.seg"))

    async def _bookies(self, query: Mapping[str, str], _body: bytes) -> Page:
        try:
            live = await self._others.bookies()
            found = live.read_only if query.get("type") == "ro" else live.writable
            hosts: dict[str, str | None] = dict.fromkeys(sorted(found))
            if query.get("print_hostnames") == "true":
                for bookie in hosts:
                    info = await self._others.info(bookie)
                    address = None if info is None else info.address()
                    hosts[bookie] = None if address is None else address[0]
        except MetadataError as error:
            return Page(500, f"{error}\n".encode())
        return json_page(hosts)

    async def _collecting(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return json_page({"is_in_force_gc": str(self._node.is_collecting).lower()})

    async def _collect(self, _query: Mapping[str, str], _body: bytes) -> Page:
        await self._node.collect_garbage()
        return json_page(f"Triggered GC on bookie {self._node.bookie_id}")


def _tabbed(names: Iterable[str]) -> str:
    return "".join(f"{name}\t" for name in names)
