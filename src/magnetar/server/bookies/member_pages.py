"""Types of the pages on the HTTP ports of bookies and nodes of auto-recovery."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


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
