"""Which topics of a namespace a client sees that asks by a pattern."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.base.names import TopicName
from magnetar.broker.watchers.pattern import Pattern
from magnetar.runtime.tasks import yield_loop
from magnetar.wire.checksum import crc32c

if TYPE_CHECKING:
    from magnetar.runtime.fair_places import FairPlaces

PATTERN_CHARS_MAX: Final = 50
"""Longer patterns are left to the client (Pulsar's subscriptionPatternMaxLength)."""

_PIECE: Final = 10_000
"""States of the automaton and characters of names in one turn of the loop: one or two milliseconds."""
_SMALL: Final = 1_000
"""A list that walked through fewer states takes no turn of its own: there may be thousands of these."""
_WAITING_MAX: Final = 100_000
"""Lists of one owner that wait: fewer than it may have connections and watchers."""


class Matcher(Protocol):
    """Selects topics: a pattern, or a wildcard."""

    work: int
    """Grows with what it has done since it rested."""

    def in_pieces(self, text: str) -> Generator[None, None, bool]:
        """Whether it chooses `tenant/namespace/name`, the name without a partition's suffix; with a pause
        after each piece of work. Raises PatternError when it is too much in all."""

    def rest(self) -> None:
        """Called at the end of a list of names."""


class MatchingTurns:
    """One piece of matching per turn of the event loop, over all lists, tenant after tenant: when many
    clients ask for lists at once, a turn would otherwise take as long as a piece of each."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: FairPlaces | None = None

    @asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """The block is one piece."""
        if self._places is None:
            # Rarely needed, and not at a start.
            from magnetar.runtime.fair_places import FairPlaces

            self._places = FairPlaces(1, waiting_max=_WAITING_MAX)
        async with self._places.take(owner):
            yield


def compiled(text: str) -> Pattern:
    """The compiled pattern of a client, without the optional domain before it. Raises PatternError."""
    domain, separator, rest = text.partition("://")
    if not separator:
        return Pattern(text)
    return Pattern(f"\\Q{rest}" if domain.rpartition("\\E")[2].find("\\Q") >= 0 else rest)


async def matching(
    pattern: Matcher, names: Iterable[TopicName], turns: MatchingTurns | None = None
) -> list[TopicName]:
    """Those of the names, which are of one tenant, that match; other tasks run in between.

    `turns`: shared by all lists of the broker. Raises PatternError.
    """
    found: list[TopicName] = []
    pieces = _pieces(pattern, names, found)
    turns = turns or MatchingTurns()
    owner = next(pieces, None)
    try:
        while owner is not None:
            async with turns.take(owner):
                owner = next(pieces, None)
                if owner is not None or pattern.work > _SMALL:
                    # The place is held meanwhile: no other list's piece runs in this turn.
                    await yield_loop()
    finally:
        pattern.rest()
    return found


def _pieces(
    pattern: Matcher, names: Iterable[TopicName], found: list[TopicName]
) -> Generator[str, None, None]:
    """Pauses before the first and after each piece of work, and names its tenant."""
    pause_at, characters = _PIECE, 0
    tenant = ""
    for name in names:
        base = name.base
        if not tenant:
            tenant = base.tenant
            yield tenant
        text = f"{base.tenant}/{base.namespace}/{base.local}"
        walk = pattern.in_pieces(text)
        while True:
            try:
                next(walk)
            except StopIteration as end:
                if end.value:
                    found.append(name)
                break
            yield tenant
        characters += len(text)
        if pattern.work + characters > pause_at:
            yield tenant
            pause_at = pattern.work + characters + _PIECE


def topics_digest(names: Iterable[str]) -> str:
    """CRC32C over the sorted names joined by commas, as eight hex digits of little-endian bytes."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()
