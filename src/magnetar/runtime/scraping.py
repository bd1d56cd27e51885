"""Scrapes of metrics in pieces: the event loop gets turns in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.observability.metrics import FamilyText, Registry
from magnetar.runtime.tasks import yield_loop

STEPS_PER_TURN: Final = 16
"""Steps of collectors before the event loop gets a turn, about half a millisecond. A step is a topic or some
of its subscriptions."""
BYTES_PER_TURN: Final = 64 << 10
"""Bytes of text that are made before the event loop gets a turn."""


async def scraped(registry: Registry) -> str:
    """The text of a scrape."""
    return "".join([head + samples async for _, head, samples in _families(registry, "")])


async def encoded(registry: Registry) -> bytes:
    """The text of a scrape in UTF-8."""
    return b"".join([(head + samples).encode() async for _, head, samples in _families(registry, "")])


async def families_of(registry: Registry, process: str) -> list[FamilyText]:
    """The families of a scrape. `process`: the value of a label `process` that every sample gets."""
    return [family async for family in _families(registry, process)]


async def _families(registry: Registry, process: str) -> AsyncIterator[FamilyText]:
    for turn, family in enumerate(registry.families(process), 1):
        if family is not None:
            yield family
        if turn % STEPS_PER_TURN == 0 or (family is not None and len(family.samples) > BYTES_PER_TURN):
            await yield_loop()
