"""Each kind of stored value replaced by anything: refused by its path or usable, and never changed.

The kinds are those of the table in `magnetar.metadata.keys`: one without a reader here fails the test.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.balance.last_moves import read as read_last_moves
from magnetar.broker.limits.groups import ResourceGroups
from magnetar.broker.policies.policies import PolicyStore
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import KeptTransactions, part_path
from magnetar.broker.transactions.kept_log import LoggedTransactions
from magnetar.broker.transactions.mirror import TopicPart
from magnetar.broker.transactions.recovery import left_by
from magnetar.functions.catalogue.records import FunctionRecord, PackageRecord
from magnetar.ledger.ledger_metadata import decode_ledger_metadata
from magnetar.managedlog.cursors.cursor_codec import decode_info
from magnetar.managedlog.log_metadata import decode
from magnetar.managedlog.moved_store import known_places
from magnetar.metadata import keys
from magnetar.metadata.bookkeeper.known_ledgers import KnownLedgers, check_known_ledgers
from magnetar.metadata.documents import number_of, object_of
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.schemas.registry import SchemaRegistry
from magnetar.server.storage.cluster_losses import decode_losses

_TOPIC: Final = TopicName.parse("persistent://hit/n/t")
_NAMESPACE: Final = NamespaceName("hit", "n")
_CHANCE: Final = random.Random(24)

GARBAGE: Final = {
    "random": _CHANCE.randbytes(64),
    "empty": b"",
    "truncated": b'{"adminRoles":["a"],"parti',
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "long": b"9" * 5_000,
    "infinite": b'{"partitions":1e999,"publishRateInMsgs":1e999}',
    "huge": b'{"partitions":999999999999999999999999,"properties":7,"publishRateInMsgs":9999999999999999999}',
    "other types": b'{"partitions":"x","adminRoles":"admins","publishRateInMsgs":"z","s":7}',
    "a header of other types": b'{"s":"OPEN","o":7,"t":"x","l":[],"p":[]}',
    "a header that is long": b'{"s":"OPEN","o":"","t":1,"l":1,"a":{"t":{"s":{"w":[[1,0,1000000000000]]}}}}',
    "a number": b"-1",
    "text": "\N{SNOWMAN}".encode(),
}

Read = Callable[[MemoryMetadataStore, str], Awaitable[object]]


def _policies(read: Callable[[PolicyStore], Awaitable[object]]) -> Read:
    return lambda store, path: read(PolicyStore(store, "standalone"))


def _decoded(decoder: Callable[[bytes, str], object]) -> Read:
    async def read(store: MemoryMetadataStore, path: str) -> object:
        value = await store.get(path)
        assert value is not None
        return decoder(value.data, path)

    return read


async def _group(policies: PolicyStore) -> object:
    document = await policies.resource_group("g")
    return ResourceGroups(ManualClock()).of("g", document or {})


async def _tenant(policies: PolicyStore) -> object:
    tenant = await policies.tenant("hit")
    assert tenant is not None
    assert isinstance(tenant.get("adminRoles") or [], list), "a text contains every part of it"
    return tenant


async def _of_log(store: MemoryMetadataStore, path: str) -> object:
    def never(work: object) -> None:
        raise AssertionError("nothing is written")

    return [each async for each in LoggedTransactions(store, never).headers(0)]


async def _coordinator(store: MemoryMetadataStore, path: str) -> object:
    return await left_by(KeptTransactions(store), 0, open_max=1, clock=ManualClock())


NO_READER: Final = {
    "/namespace/{tenant}/{namespace}/{bundle}": "owners: broker/ownership",
    "/loadbalance/brokers/{broker}": "live brokers: broker/ownership",
    "/loadbalance/leader": "live leader: broker/balance/leadership.py",
    "/counters/producer-name": "its children have no values",
    "/magnetar/deletions/{ledger}": "empty",
    "/magnetar/offload-stores/{store}": "compared as bytes, never parsed",
    "/magnetar/offload-owner": "a text",
    "/magnetar/transactions/damaged-outcomes/{coordinator}/{page}-{sum}": "never parsed, only its name",
    "/magnetar/transactions/damaged-parts/{...}/{topic}/{coordinator}-{number}-{sum}": "never parsed",
    "/magnetar/transactions/wishes/{coordinator}/{number}": "a text: any bytes are one",
    "/magnetar/transactions/shared": "never parsed, only its presence",
    "/magnetar/unnamed-ledgers": "begins again, with an error in the log: managedlog/orphans.py",
}

_T: Final = "hit/n/persistent/t"
READERS: Final[dict[str, tuple[str, Read]]] = {
    "/admin/clusters/{cluster}": ("/admin/clusters/c", _policies(lambda p: p.cluster_document("c"))),
    "/admin/configuration": ("/admin/configuration", _policies(lambda p: p.configuration())),
    "/admin/policies/{tenant}": ("/admin/policies/hit", _policies(_tenant)),
    "/admin/policies/{tenant}/{namespace}": (
        "/admin/policies/hit/n",
        _policies(lambda p: p.namespace(_NAMESPACE)),
    ),
    "/admin/local-policies/{tenant}/{namespace}": (
        "/admin/local-policies/hit/n",
        _policies(lambda p: p.document("/admin/local-policies/hit/n")),
    ),
    "/admin/topic-policies/{tenant}/{namespace}/{domain}/{topic}": (
        f"/admin/topic-policies/{_T}",
        _policies(lambda p: p.topic_policies(_TOPIC)),
    ),
    "/admin/local-policies/topic-policies/{...}/{topic}": (
        f"/admin/local-policies/topic-policies/{_T}",
        _policies(lambda p: p.topic_policies(_TOPIC)),
    ),
    "/admin/resourcegroups/{group}": ("/admin/resourcegroups/g", _policies(_group)),
    "/admin/clusters/{cluster}/failureDomain/{domain}": (
        "/admin/clusters/c/failureDomain/d",
        _policies(lambda p: p.document("/admin/clusters/c/failureDomain/d")),
    ),
    "/admin/clusters/{cluster}/namespaceIsolationPolicies": (
        "/admin/clusters/c/namespaceIsolationPolicies",
        _policies(lambda p: p.document("/admin/clusters/c/namespaceIsolationPolicies")),
    ),
    "/bookies": ("/bookies", _policies(lambda p: p.fresh_document("/bookies"))),
    "/loadbalance/resource-quota/...": (
        "/loadbalance/resource-quota/root",
        _policies(lambda p: p.fresh_document("/loadbalance/resource-quota/root")),
    ),
    "/admin/partitioned-topics/{tenant}/{namespace}/{domain}/{topic}": (
        f"/admin/partitioned-topics/{_T}",
        _policies(lambda p: p.partitions(_TOPIC)),
    ),
    "/managed-ledgers/{tenant}/{namespace}/persistent/{topic}": (f"/managed-ledgers/{_T}", _decoded(decode)),
    "/managed-ledgers/{...}/{topic}/{cursor}": (f"/managed-ledgers/{_T}/s", _decoded(decode_info)),
    "/schemas/{tenant}/{namespace}/{topic}": (
        "/schemas/hit/n/t/0000000000",
        lambda store, path: SchemaRegistry(store).versions(_TOPIC),
    ),
    "/ledgers/...": (
        "/ledgers/00/0000/L0001",
        _decoded(decode_ledger_metadata),
    ),
    "/magnetar/offload-places": ("/magnetar/offload-places", lambda store, path: known_places(store)),
    "/magnetar/ledgers-of": (
        keys.LEDGERS_OF,
        lambda store, path: check_known_ledgers(store, "/magnetar/c", KnownLedgers("i", "/ledgers")),
    ),
    "/magnetar/given-up": (keys.GIVEN_UP, _decoded(decode_losses)),
    "/magnetar/last-moves": (keys.LAST_MOVES, lambda store, path: read_last_moves(store)),
    "/magnetar/functions/{tenant}/{namespace}/{function}": (
        keys.function(_NAMESPACE, "f"),
        _decoded(lambda data, path: FunctionRecord.decode(path, data)),
    ),
    "/magnetar/packages/{type}/{tenant}/{namespace}/{package}/{version}": (
        f"{keys.PACKAGES}/function/hit/n/p/1",
        _decoded(lambda data, path: PackageRecord.decode(path, data)),
    ),
    "/magnetar/function-files/{path}": (
        keys.function_file("a/b"),
        _decoded(lambda data, path: PackageRecord.decode(path, data)),
    ),
    "/magnetar/generation": ("/magnetar/generation", _decoded(lambda data, path: number_of(path, data))),
    "/magnetar/bookies-beside/{bookie}": (
        "/magnetar/bookies-beside/b",
        _decoded(lambda data, path: number_of(path, data)),
    ),
    "/magnetar/transactions/coordinators/{coordinator}": (keys.transaction_coordinator(0), _coordinator),
    "/magnetar/transactions/headers/{coordinator}/{number}": (
        f"{keys.transaction_headers(0)}/1",
        _coordinator,
    ),
    "/magnetar/transactions/log/{record}": (f"{keys.TRANSACTION_LOG}/7", _of_log),
    "/magnetar/transactions/outcomes/{coordinator}/{page}": (
        f"{keys.TRANSACTIONS}/outcomes/0/0",
        _coordinator,
    ),
    "/magnetar/transactions/parts/{...}/{topic}/{coordinator}-{number}": (
        part_path(_TOPIC.log_name, TxnId(0, 1)),
        _decoded(TopicPart.read),
    ),
    "/magnetar/transactions/hidden/{...}/{topic}/{ledger}": (
        f"{keys.hidden_entries(_TOPIC.log_name)}/1",
        lambda store, path: KeptTransactions(store).hidden(_TOPIC.log_name),
    ),
}


def test_each_kind_of_value_has_a_reader_here() -> None:
    kinds = set(re.findall(r"^\| `(/[^`]*)` \|", keys.__doc__ or "", re.MULTILINE))
    assert len(kinds) > 25
    assert kinds == READERS.keys() | NO_READER.keys()


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("kind", READERS)
def test_garbage_is_refused_by_its_path_or_usable(kind: str, garbage: str) -> None:
    path, read = READERS[kind]

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put(path, GARBAGE[garbage])
        said = path
        try:
            await read(store, path)
        except MagnetarError as error:
            said = str(error)
        assert path in said, "an operator looks for the path"
        value = await store.get(path)
        assert value is not None
        assert value.data == GARBAGE[garbage]

    asyncio.run(story())


def test_a_text_in_place_of_a_list_of_roles_gives_no_rights() -> None:
    async def story() -> Any:
        store = MemoryMetadataStore(ManualClock())
        await store.put("/admin/policies/hit", b'{"adminRoles":"administrators"}')
        return await PolicyStore(store, "standalone").tenant("hit")

    assert "adminRoles" not in asyncio.run(story())


def test_numbers_are_decimal_and_of_63_bits() -> None:
    assert number_of("/a", b"007") == 7
    for data in (b"", b"-1", b"1_0", b" 1", b"9" * 20, "\N{ARABIC-INDIC DIGIT ONE}".encode()):
        with pytest.raises(MagnetarError, match=r"^/a "):
            number_of("/a", data)
    assert object_of("/a", b"{}") == {}
