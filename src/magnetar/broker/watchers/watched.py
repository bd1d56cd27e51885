"""What one watcher of a namespace's topics knows, and what it must be told (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.broker.watchers.selection import Matcher, topics_digest


@dataclass(frozen=True, slots=True)
class Update:
    """Matching topics that came and went, and the digest of all that are there now."""

    new: list[str]
    deleted: list[str]
    digest: str


class Watched:
    """The list that a client has built up."""

    def __init__(self, pattern: Matcher) -> None:
        self.pattern = pattern
        self.topics: set[str] = set()
        """Names that match, as the client knows them."""

    @property
    def digest(self) -> str:
        """Of the topics that match."""
        return topics_digest(self.topics)

    def change(self, came: Iterable[str], went: Iterable[str]) -> Update | None:
        """Notes matching topics that came, and any that went; None when nothing changes for the client."""
        new = sorted(set(came) - self.topics)
        deleted = sorted(self.topics & set(went))
        if not new and not deleted:
            return None
        self.topics.update(new)
        self.topics.difference_update(deleted)
        return Update(new, deleted, self.digest)
