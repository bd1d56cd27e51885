"""How long an expression takes at most, from its parts and the size of what it judges (pure).

The loop judges what takes a millisecond in all at most; the rest is judged beside it (`judge.py`). So these
are bounds, not averages: each number is what the slowest input takes that was found (`python -m
bench.filter_work` measures them, and fails when one is too small).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar.broker.filters.entry_filter import Candidate

_ENTRY_US: Final = 10.0
"""For an entry: its names, and a verdict."""
_BYTE_US: Final = 0.1
"""For a byte of metadata, which may be many properties of three bytes each."""
_MESSAGE_US: Final = 6.0
"""For a message of a batch."""
_PAYLOAD_BYTE_US: Final = 0.02
"""For a byte of a batch that is decompressed and cut into messages."""
_PART_US: Final = 0.5
"""For a part of the expression, asked about one message."""
_PART_BYTE_US: Final = 0.01
"""For a part and a byte, as texts and properties are compared."""
_WALK_US: Final = 1.0
"""For a part that goes through a text."""
_WALK_BYTE_US: Final = 0.02
_COMPARED_US: Final = 0.001
"""For a comparison of two characters: a search may compare half of a text's with the other half."""


class JudgingWork(NamedTuple):
    """The work of one expression."""

    parts: int
    """Names, values, functions and operators."""
    walks: int
    """Those of them that may go through a whole text."""

    def of(self, candidate: Candidate) -> float:
        """Microseconds for an entry, at most."""
        said = candidate.metadata_bytes
        if not candidate.is_batch:
            return _ENTRY_US + self._of_texts(said, 1)
        opened = candidate.opened_bytes
        if not opened:
            return _ENTRY_US + said * _BYTE_US
        return (
            _ENTRY_US
            + opened * _PAYLOAD_BYTE_US
            + candidate.messages * _MESSAGE_US
            + self._of_texts(said + opened, candidate.messages)
        )

    def _of_texts(self, said: int, messages: int) -> float:
        """For messages with so many bytes of metadata together."""
        searches = self.walks * said * (_WALK_BYTE_US + said * _COMPARED_US / 4)
        fixed = messages * (self.parts * _PART_US + self.walks * _WALK_US)
        return fixed + said * (_BYTE_US + self.parts * _PART_BYTE_US) + searches


TURN_MS_MAX: Final = 1.0
"""Milliseconds of one turn of the loop after which no subscription judges any more in it."""


class TurnWork:
    """The time that filters have taken of this turn of the loop, over all subscriptions of a broker: one
    message may be for thousands of them."""

    __slots__ = ("_later", "_taken_ms")

    def __init__(self, later: Callable[[Callable[[], None]], None] | None = None) -> None:
        """`later` calls in the next turn; None: there are no turns."""
        self._later = later
        self._taken_ms = 0.0

    @property
    def spent(self) -> bool:
        """Whether nothing is judged any more in this turn."""
        return self._taken_ms >= TURN_MS_MAX

    def took(self, ms: float) -> None:
        """A subscription has judged for so long."""
        if self._later is not None:
            if not self._taken_ms:
                self._later(self._begin)
            # Never nothing: then it would ask for each turn more than once.
            self._taken_ms += max(ms, 0.001)

    def _begin(self) -> None:
        self._taken_ms = 0.0
