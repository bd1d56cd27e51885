"""A transaction whose beginning could not be stored, or was, and the store did not say so."""

from __future__ import annotations

from typing import Any, Final

import pytest

from magnetar.base.errors import MetadataError
from magnetar.metadata import keys
from magnetar.wire import pulsar_pb2 as pb
from support.seen import Type
from support.sessions import World, in_world
from support.transactions import ON, headers_in, opened
from unit.broker.transactions.test_repaired import sweep
from unit.broker.transactions.test_several import in_cluster

HEADERS: Final = keys.transaction_headers(0)


def fails(world: World, monkeypatch: pytest.MonkeyPatch, *, taken: bool) -> Any:
    """No header can be written; with `taken` it is, and the answer of the store is lost. The way out."""
    kept = world.broker.transactions._kept
    write = kept.write

    async def failing(*arguments: Any) -> Any:
        if taken:
            await write(*arguments)
        raise MetadataError("the store is away")

    monkeypatch.setattr(kept, "write", failing)
    return lambda: monkeypatch.setattr(kept, "write", write)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("alone", [True, False])
def test_it_is_aborted_once_the_store_answers(
    monkeypatch: pytest.MonkeyPatch, *, alone: bool, taken: bool
) -> None:
    """It counted as open until its time was over, up to a day, though no client knew of it."""

    async def story(world: World, *_: object) -> None:
        client = await opened(world)
        known = await client.begin()
        back = fails(world, monkeypatch, taken=taken)
        answer = await client.peer.ask(Type.NEW_TXN, request_id=77, txn_ttl_seconds=3_600_000)
        assert answer.error == pb.TransactionCoordinatorNotFound, "clients ask again"
        coordinator = world.broker.transactions.coordinators[0]
        await sweep(world)
        assert coordinator.open_count == 2, "the store may have it"
        back()
        await sweep(world)
        assert [txn.id for txn in coordinator.open_ones()] == [known]
        await sweep(world)
        left = await headers_in(world.store)
        names = [str(txn.sequence) for txn in left] if alone else await world.store.children(HEADERS)
        assert names == [str(known.sequence)]
        coordinator.check()
        await client.commit(known)

    in_world(story, ON) if alone else in_cluster(story)
