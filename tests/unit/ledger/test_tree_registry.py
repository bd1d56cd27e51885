"""Ledgers in the metadata store when the outcome of a write is unknown: it is found out, never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.registry import LedgerExistsError
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import OutcomeUnknownError, Stat

OPEN = LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=3, ack_quorum=2)


class UncertainStore(MemoryMetadataStore):
    """Loses the answers to some writes, which take effect or not."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.outcomes: list[bool] = []
        """Whether each of the next writes takes effect before its answer is lost."""

    async def put(self, path: str, data: bytes, **options: Any) -> Stat:
        if not self.outcomes or "idgen" in path:
            return await super().put(path, data, **options)
        if self.outcomes.pop(0):
            await super().put(path, data, **options)
        raise OutcomeUnknownError("the answer is lost")

    async def delete(self, path: str, **options: Any) -> None:
        if not self.outcomes or "idgen" in path:
            return await super().delete(path, **options)
        if self.outcomes.pop(0):
            await super().delete(path, **options)
        raise OutcomeUnknownError("the answer is lost")


def run(story: Callable[[UncertainStore, TreeLedgerRegistry], Awaitable[None]]) -> None:
    async def main() -> None:
        store = UncertainStore()
        await story(store, TreeLedgerRegistry(store, BookKeeperTree()))
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("outcomes", [[True], [False], [False, True], [False, False], [True, True]])
def test_a_creation_is_one_ledger_whatever_became_of_its_answer(outcomes: list[bool]) -> None:
    async def story(store: UncertainStore, ledgers: TreeLedgerRegistry) -> None:
        store.outcomes = list(outcomes)
        created = await ledgers.create(OPEN)
        store.outcomes = []
        assert [each async for each in ledgers.ledger_ids()] == [created.ledger_id]
        assert await ledgers.read(created.ledger_id) == created

    run(story)


def test_a_creation_that_nobody_can_tell_of_says_so() -> None:
    async def story(store: UncertainStore, ledgers: TreeLedgerRegistry) -> None:
        store.outcomes = [False] * 3
        with pytest.raises(OutcomeUnknownError):
            await ledgers.create(OPEN)

    run(story)


def test_somebody_elses_ledger_is_not_taken_for_our_own() -> None:
    async def story(store: UncertainStore, ledgers: TreeLedgerRegistry) -> None:
        await ledgers.create(OPEN, 7)
        store.outcomes = [False]
        with pytest.raises(LedgerExistsError):
            await ledgers.create(OPEN, 7)

    run(story)


@pytest.mark.parametrize("outcome", [True, False])
def test_a_deletion_is_done_whatever_became_of_its_answer(outcome: bool) -> None:
    async def story(store: UncertainStore, ledgers: TreeLedgerRegistry) -> None:
        created = await ledgers.create(OPEN)
        store.outcomes = [outcome]
        await ledgers.delete(created.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await ledgers.read(created.ledger_id)
        await ledgers.delete(created.ledger_id)

    run(story)


def test_a_replacement_whose_outcome_is_unknown_is_left_to_the_caller() -> None:
    async def story(store: UncertainStore, ledgers: TreeLedgerRegistry) -> None:
        created = await ledgers.create(OPEN)
        store.outcomes = [True]
        with pytest.raises(OutcomeUnknownError):
            await ledgers.write(created.ledger_id, OPEN.recovering(), created.version)
        assert (await ledgers.read(created.ledger_id)).metadata.state is LedgerState.IN_RECOVERY

    run(story)
