"""Names in levels, and wildcards over them (pure).

    nyc.group-a.loot      three levels
    *.chat                one level, whatever it is, then `chat`
    nyc.**                `nyc` and at least one level more; `**` alone: every name

A `*` within a level is a character like others. A partition's suffix is no part of the name.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from magnetar.base.names import NamespaceName, TopicName

ONE: Final = "*"
MANY: Final = "**"
LEVELS_MAX: Final = 64
"""Levels of a wildcard; one with more is a plain name."""


class Levels:
    """A wildcard."""

    def __init__(self, text: str) -> None:
        """`text`: of the own names of topics, without tenant and namespace."""
        self.text = text
        self._parts = text.split(".")
        self.work = 0
        """Steps taken since it rested; grows with each name."""

    def matches_local(self, local: str) -> bool:
        """Whether it names the topic of this own name."""
        levels = local.split(".")
        # reached: how many levels may have been taken by the parts looked at so far.
        reached = {0}
        for part in self._parts:
            self.work += len(reached)
            if part == MANY:
                reached = set(range(min(reached) + 1, len(levels) + 1)) if reached else reached
            else:
                reached = {
                    at + 1 for at in reached if at < len(levels) and (part == ONE or part == levels[at])
                }
        return len(levels) in reached

    def matches(self, text: str) -> bool:
        """The same for `tenant/namespace/name`, which are of the wildcard's own namespace."""
        return self.matches_local(text.rpartition("/")[2])

    def in_pieces(self, text: str) -> Generator[None, None, bool]:
        """The same for who would pause within a long piece of work; here there is none."""
        yield from ()
        return self.matches(text)

    def rest(self) -> None:
        """A list of names ends: work is counted anew."""
        self.work = 0


def is_wildcard(local: str) -> bool:
    """Whether this own name of a topic is a wildcard."""
    if "*" not in local:
        return False
    parts = local.split(".")
    return len(parts) <= LEVELS_MAX and any(part in (ONE, MANY) for part in parts)


def levels_of(name: TopicName) -> Levels | None:
    """The wildcard that the name of a persistent topic is; None when it is none."""
    return Levels(name.local) if name.persistent and is_wildcard(name.local) else None


def in_namespace(text: str, namespace: NamespaceName) -> Levels:
    """What an operator asks for: a wildcard or a plain name, with or without its namespace."""
    _, _, rest = text.rpartition("://")
    return Levels(rest.removeprefix(f"{namespace}/"))
