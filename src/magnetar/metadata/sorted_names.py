"""Long lists of names, in several turns of the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.base.sort_steps import sorting
from magnetar.runtime.tasks import yield_loop

NAMES_PER_TURN: Final = 1_000
"""Names that are read or sorted before the loop gets a turn: less than a millisecond of work."""


async def in_order(names: Iterable[str]) -> list[str]:
    """The names, sorted. More than NAMES_PER_TURN take several turns of the loop."""
    given: Sequence[str] = names if isinstance(names, list) else list(names)
    steps = sorting(given, NAMES_PER_TURN)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[str] = end.value
            return found
        await yield_loop()
