"""Names in levels, and wildcards over them (pure).

    nyc.group-a.loot      three levels
    *.chat                any one level, then `chat`
    nyc.**                `nyc` and at least one level more; `**` alone: every name

A `*` within a longer level is an ordinary character. A partition's suffix does not belong to the name.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from magnetar.base.names import NamespaceName, TopicName

ONE: Final = "*"
MANY: Final = "**"
LEVELS_MAX: Final = 64
"""Most levels of a wildcard; a text with more is a plain name."""


class Levels:
    """A wildcard."""

    def __init__(self, text: str) -> None:
        """`text`: the wildcard for own names of topics, without tenant and namespace."""
        self.text = text
        self._parts = text.split(".")
        self.work = 0
        """Steps of work since `rest`."""

    def match_local(self, local: str) -> bool:
        """Returns whether the wildcard matches a topic's own name; counts its work."""
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

    def match(self, text: str) -> bool:
        """As `match_local`, for a name `tenant/namespace/name` of the wildcard's own namespace."""
        return self.match_local(text.rpartition("/")[2])

    def in_pieces(self, text: str) -> Generator[None, None, bool]:
        """As `match`, with the interface of rules that pause in long work; this one never pauses."""
        yield from ()
        return self.match(text)

    def rest(self) -> None:
        """Resets the count of work, at the end of a list of names."""
        self.work = 0


def is_wildcard(local: str) -> bool:
    """Whether a topic's own name is a wildcard."""
    if "*" not in local:
        return False
    parts = local.split(".")
    return len(parts) <= LEVELS_MAX and any(part in (ONE, MANY) for part in parts)


def levels_of(name: TopicName) -> Levels | None:
    """The wildcard in the name of a persistent topic; None when it is not one."""
    return Levels(name.local) if name.persistent and is_wildcard(name.local) else None


def in_namespace(text: str, namespace: NamespaceName) -> Levels:
    """The wildcard of an operator's filter: a wildcard or a plain name, with or without its namespace."""
    _, _, rest = text.rpartition("://")
    return Levels(rest.removeprefix(f"{namespace}/"))
