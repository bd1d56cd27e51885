"""Every page of a bookie and of auto-recovery, for callers that show nothing; one without a row fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.bookie.network.access import Access
from magnetar.server.bookies.autorecovery_pages import AutoRecoveryPages
from magnetar.server.bookies.bookie_pages import BookiePages
from magnetar.server.bookies.member_pages import Handler, Page, PageTable

_A = "/api/v1/autorecovery"
_B = "/api/v1/bookie"
READ = {
    "bookie": (
        *("/heartbeat", "/metrics", f"{_B}/info", f"{_B}/state", f"{_B}/state/readonly", f"{_B}/is_ready"),
        *(f"{_B}/list_disk_file", f"{_B}/list_bookies", f"{_B}/gc"),
    ),
    "autorecovery": (
        *("/heartbeat", "/metrics", f"{_A}/status", f"{_A}/who_is_auditor"),
        *(f"{_A}/list_under_replicated_ledger", f"{_A}/lost_bookie_recovery_delay"),
    ),
}
CHANGED = {
    "bookie": (f"{_B}/state/readonly", f"{_B}/gc"),
    "autorecovery": (f"{_A}/status", f"{_A}/trigger_audit", f"{_A}/lost_bookie_recovery_delay"),
}


def table_of(member: str, *, is_open: bool) -> PageTable:
    access = Access() if is_open else Access(users={"broker": "secret"})
    entries = SimpleNamespace(stores=())
    node: Any = SimpleNamespace(server=SimpleNamespace(access=access, traffic=None, entries=entries))
    if member == "bookie":
        return BookiePages(node, cast(Any, None))._table
    return AutoRecoveryPages(node, takes_changes=is_open)._table


def noting(key: tuple[str, str], called: list[tuple[str, str]]) -> Handler:
    async def handler(_query: object, _body: bytes) -> Page:
        called.append(key)
        return Page(200)

    return handler


@pytest.mark.parametrize("member", READ)
def test_every_page_of_a_protected_member(member: str) -> None:
    rows = {("GET", path) for path in READ[member]} | {("PUT", path) for path in CHANGED[member]}
    for is_open in (False, True):
        table = table_of(member, is_open=is_open)
        pages = cast("dict[tuple[str, str], Any]", table._pages)
        assert pages.keys() == rows, "a page without a row, or a row without a page"
        called: list[tuple[str, str]] = []
        for key in pages:
            pages[key] = noting(key, called)
        answers = {(method, path): asyncio.run(table.answer(method, path, {}, b"")) for method, path in rows}
        refused = set() if is_open else {key for key in rows if key[0] == "PUT"}
        assert {key for key, page in answers.items() if page.status == 403} == refused
        assert set(called) == rows - refused
        for method in ("POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "get"):
            assert asyncio.run(table.answer(method, "/heartbeat", {}, b"")).status == 404
