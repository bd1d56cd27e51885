"""The pages on the HTTP ports of bookies and nodes of auto-recovery: what both have.

Callers are not authenticated. So where ledger clients must use TLS or show credentials, no changes are taken
on these ports, unless the operator allows them: else each caller that reaches one could make a bookie
read-only, or switch off the repair of the whole cluster.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_CHANGES: Final = frozenset(("PUT", "POST", "DELETE", "PATCH"))
"""Methods of calls that change something."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    body: bytes = b""
    content_type: str = TEXT


Handler: TypeAlias = Callable[[Mapping[str, str], bytes], Awaitable[Page]]
"""Answers a call. Arguments: its query and its body."""


class Pages(Protocol):
    """The pages of one port."""

    async def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Page:
        """The answer to a call."""


def json_page(value: object) -> Page:
    """A value as JSON."""
    return Page(200, json.dumps(value).encode(), JSON)


class PageTable:
    """Pages by method and path."""

    def __init__(
        self, pages: Mapping[tuple[str, str], Handler], *, takes_changes: bool, why_not: str = ""
    ) -> None:
        """`takes_changes`: whether calls that change something are answered. `why_not`: else, what callers
        are told before the next step."""
        self._pages = pages
        self._takes_changes = takes_changes
        self._why_not = why_not

    async def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Page:
        """The answer to a call; 404 for an unknown path or method, as in Apache's bookies; 403 for a change
        that this port does not take."""
        handler = self._pages.get((method, path))
        if handler is None:
            return Page(404, b"no such page, or not with this method\n")
        if method in _CHANGES and not self._takes_changes:
            return Page(
                403,
                f"{self._why_not}, and callers of this HTTP port show none: changes are refused; start with"
                " --http-changes to take them from every caller that reaches this port\n".encode(),
            )
        return await handler(query, body)
