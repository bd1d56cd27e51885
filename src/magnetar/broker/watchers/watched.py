"""The list of one watcher of a namespace's topics, and the changes that it must be told (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.broker.watchers.selection import Matcher, topics_digest


@dataclass(frozen=True, slots=True)
class Update:
    """Matching topics that were created and deleted, and the digest of all present ones."""

    new: list[str]
    deleted: list[str]
    digest: str


class WatchedNames:
    """The list that a client has built up."""

    def __init__(self, pattern: Matcher) -> None:
        self.pattern = pattern
        self.topics: set[str] = set()
        """Matching names, as the client knows them."""

    @property
    def digest(self) -> str:
        """Digest of the matching topics."""
        return topics_digest(self.topics)

    def change(self, came: Iterable[str], went: Iterable[str]) -> Update | None:
        """Records created and deleted topics that match; None when nothing changes for the client."""
        new = sorted(set(came) - self.topics)
        deleted = sorted(self.topics & set(went))
        if not new and not deleted:
            return None
        self.topics.update(new)
        self.topics.difference_update(deleted)
        return Update(new, deleted, self.digest)
