"""The election of the auditor: the candidate with the oldest vote wins."""

from __future__ import annotations

import contextlib

from magnetar.metadata.bookkeeper.underreplication import (
    UnderreplicationPaths,
    decode_vote,
    encode_vote,
    vote_order,
)
from magnetar.metadata.store import MetadataStore, NotFoundError


class AuditorElection:
    """One candidate's vote. It lasts as long as the store's session."""

    def __init__(self, store: MetadataStore, paths: UnderreplicationPaths, candidate_id: str) -> None:
        self._store = store
        self._paths = paths
        self._candidate_id = candidate_id
        self._vote: str | None = None
        self._announced: str | None = None
        """The vote that was told to have won."""

    async def wins(self) -> bool:
        """Whether this candidate is the auditor now; votes first when it has not. Raises MetadataError.

        Call it again after each change below the election's node, and before each action of the auditor.
        """
        await self._store.sync()
        own = None if self._vote is None else await self._store.get(self._vote)
        if self._vote is None or own is None or not own.stat.created_by_self:
            value = encode_vote(self._candidate_id)
            put = await self._store.put(self._paths.vote_prefix, value, ephemeral=True, sequential=True)
            self._vote = put.path
        first = await self._first()
        if first is None or not await self._is_own(f"{self._paths.election}/{first}"):
            return False
        if self._announced != self._vote:
            # Other processes read the auditor's id there.
            await self._store.put(self._paths.election, encode_vote(self._candidate_id))
            self._announced = self._vote
        return True

    async def _is_own(self, vote: str) -> bool:
        """Whether this candidate made the vote, also when the answer to it was lost.

        Such a vote lasts as long as the session. If it were taken for another's, it would block this
        candidate and all later ones.
        """
        if vote == self._vote:
            return True
        found = await self._store.get(vote)
        if found is None or not found.stat.created_by_self:
            return False
        if decode_vote(found.data) != self._candidate_id:
            return False
        later, self._vote = self._vote, vote
        if later is not None:
            with contextlib.suppress(NotFoundError):  # the end of an earlier session took it
                await self._store.delete(later)
        return True

    async def auditor(self) -> str | None:
        """Id of the auditor; None when there is no candidate."""
        first = await self._first()
        found = None if first is None else await self._store.get(f"{self._paths.election}/{first}")
        return None if found is None else decode_vote(found.data)

    async def withdraw(self) -> None:
        """Takes the vote back."""
        if self._vote is not None:
            vote, self._vote = self._vote, None
            with contextlib.suppress(NotFoundError):  # the end of the session took it
                await self._store.delete(vote)

    async def _first(self) -> str | None:
        votes = await self._store.children(self._paths.election)
        return min(votes, key=vote_order, default=None)
