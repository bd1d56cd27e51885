"""The pages on the HTTP port of a node of auto-recovery, with Apache's paths.

Source: BookKeeper's HTTP admin API (paths, parameters, fields, status codes).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.ledger.autorecovery import recovery_metrics as recovery_metrics
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.observability import logs, process
from magnetar.observability.metrics import CONTENT_TYPE, Registry
from magnetar.server.bookies.member_pages import Page, PageTable, json_page

_API: Final = "/api/v1/autorecovery"


class AutoRecoveryPages:
    """The pages of one node; all except `/metrics` describe the whole cluster."""

    def __init__(self, node: AutoRecoveryNode, *, takes_changes: bool) -> None:
        """`takes_changes`: see `PageTable`."""
        self._node = node
        self._registry = Registry()
        self._registry.collector(process.collect)
        self._registry.collector(logs.collect)
        self._registry.collector(partial(recovery_metrics.collect, node))
        pages = {
            ("GET", "/heartbeat"): self._heartbeat,
            ("GET", "/metrics"): self._metrics,
            ("GET", f"{_API}/status"): self._status,
            ("PUT", f"{_API}/status"): self._set_status,
            ("GET", f"{_API}/who_is_auditor"): self._auditor,
            ("GET", f"{_API}/list_under_replicated_ledger"): self._marked,
            ("PUT", f"{_API}/trigger_audit"): self._audit,
            ("GET", f"{_API}/lost_bookie_recovery_delay"): self._delay,
            ("PUT", f"{_API}/lost_bookie_recovery_delay"): self._set_delay,
        }
        self._table = PageTable(
            pages,
            takes_changes=takes_changes,
            why_not="this node comes to bookies with TLS or credentials",
        )

    async def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Page:
        """See `PageTable`; 500 when the metadata cannot be read."""
        try:
            return await self._table.answer(method, path.rstrip("/"), query, body)
        except MetadataError as error:
            return Page(500, f"{error}\n".encode())

    async def _heartbeat(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return Page(200, b"OK\n")

    async def _metrics(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return Page(200, "".join(self._registry.scrape()).encode(), CONTENT_TYPE)

    async def _status(self, _query: Mapping[str, str], _body: bytes) -> Page:
        return json_page({"enabled": await self._node.marks.enabled()})

    async def _set_status(self, query: Mapping[str, str], body: bytes) -> Page:
        wanted = query.get("enabled")
        if wanted not in ("true", "false"):
            return Page(400, b"say ?enabled=true or ?enabled=false\n")
        await self._node.marks.enable(enabled=wanted == "true")
        return await self._status(query, body)

    async def _auditor(self, _query: Mapping[str, str], _body: bytes) -> Page:
        auditor = await self._node.election.auditor()
        if auditor is None:
            return Page(404, b"No auditor elected\n")
        return Page(200, f"Auditor: {auditor}\n".encode())

    async def _marked(self, query: Mapping[str, str], _body: bytes) -> Page:
        wanted, unwanted = query.get("missingreplica"), query.get("excludingmissingreplica")
        found: dict[int, list[str]] = {}
        async for ledger_id in self._node.marks.marked():
            mark = await self._node.marks.get(ledger_id)
            replicas = () if mark is None else mark[0].replicas
            if mark is None or (wanted and wanted not in replicas) or (unwanted and unwanted in replicas):
                continue
            found[ledger_id] = list(replicas)
        if not found:
            return Page(404, b"No under replicated ledgers found\n")
        return json_page(found if query.get("printmissingreplica") == "true" else sorted(found))

    async def _audit(self, _query: Mapping[str, str], _body: bytes) -> Page:
        delay_s = await self._node.marks.lost_bookie_delay_s()
        # Setting it to its present value requests an audit, whichever node is the auditor.
        await self._node.marks.set_lost_bookie_delay(delay_s or 0)
        return Page(200, b"Success trigger audit.\n")

    async def _delay(self, _query: Mapping[str, str], _body: bytes) -> Page:
        delay_s = await self._node.marks.lost_bookie_delay_s()
        return Page(200, f"lostBookieRecoveryDelay value: {delay_s or 0}\n".encode())

    async def _set_delay(self, _query: Mapping[str, str], body: bytes) -> Page:
        try:
            seconds = json.loads(body)["delay_seconds"]
        except (ValueError, KeyError, TypeError, RecursionError):
            seconds = None
        if type(seconds) is not int or seconds < 0:
            return Page(400, b'the body must be {"delay_seconds": NUMBER}\n')
        await self._node.marks.set_lost_bookie_delay(seconds)
        return Page(200, f"Success set lostBookieRecoveryDelay to {seconds}\n".encode())
