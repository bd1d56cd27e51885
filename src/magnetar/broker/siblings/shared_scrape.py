"""The part of several processes that `/metrics` uses on a port that they share; server/processes has it."""

from __future__ import annotations

from typing import Protocol


class SharedScrape(Protocol):
    """The metrics of all processes of this machine."""

    @property
    def ports(self) -> frozenset[int]:
        """Ports for HTTP at which a scrape gets them."""
        ...

    async def scraped(self) -> str:
        """The text of a scrape. Processes that do not answer are left out, and it says so."""
        ...
