"""Phases of a ledger's recovery, the transitions between them, and the votes on an entry (pure)."""

from __future__ import annotations

from enum import Enum, unique
from typing import Final

from magnetar.base.machine import Transitions
from magnetar.wire.bookkeeper.digests import LedgerEntry


@unique
class Phase(Enum):
    MARKING = "marking"
    ASKING = "asking"
    READING = "reading"
    MEASURING = "measuring"
    SEALING = "sealing"
    OVER = "over"


TRANSITIONS: Final[Transitions[Phase]] = {
    Phase.MARKING: frozenset({Phase.ASKING, Phase.OVER}),
    Phase.ASKING: frozenset({Phase.READING, Phase.OVER}),
    Phase.READING: frozenset({Phase.MEASURING, Phase.SEALING, Phase.OVER}),
    Phase.MEASURING: frozenset({Phase.SEALING, Phase.OVER}),
    Phase.SEALING: frozenset({Phase.OVER}),
    Phase.OVER: frozenset(),
}


class Votes:
    """The answers about one entry."""

    __slots__ = ("absent", "answered", "found")

    def __init__(self) -> None:
        self.absent: set[int] = set()
        self.answered: set[int] = set()
        self.found: LedgerEntry | None = None
