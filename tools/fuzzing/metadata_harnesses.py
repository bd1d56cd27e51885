"""Harnesses of values in the metadata: what another program, or damage, has left there."""

from __future__ import annotations

from typing import Final

from fuzzing.harness import Harness, require
from magnetar.base.errors import MagnetarError
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.managedlog.cursors import entry_set_codec
from magnetar.server.storage.metadata_doctor import look_at
from magnetar.server.storage.metadata_kinds import KINDS, kind_of

_T: Final = "t/n/persistent/x"
_PATHS: Final = (
    "/admin/clusters/c",
    "/admin/configuration",
    "/admin/policies/t",
    "/admin/policies/t/n",
    "/admin/local-policies/t/n",
    f"/admin/topic-policies/{_T}",
    f"/admin/local-policies/topic-policies/{_T}",
    "/admin/resourcegroups/g",
    "/admin/clusters/c/failureDomain/d",
    "/admin/clusters/c/namespaceIsolationPolicies",
    "/bookies",
    "/loadbalance/resource-quota/root",
    f"/admin/partitioned-topics/{_T}",
    f"/managed-ledgers/{_T}",
    f"/managed-ledgers/{_T}/s",
    "/schemas/t/n/x/0000000000",
    "/ledgers/00/0000/L0001",
    "/ledgers/idgen",
    "/ledgers/INSTANCEID",
    "/magnetar/offload-places",
    "/magnetar/last-moves",
    "/magnetar/generation",
    "/magnetar/bookies-beside/b",
    "/magnetar/transactions/coordinators/0",
    "/magnetar/transactions/headers/0/1",
    "/magnetar/transactions/outcomes/0/0",
    "/magnetar/transactions/damaged-outcomes/0/0-1",
    f"/magnetar/transactions/hidden/{_T}/1",
)
"""At least one of each kind; a byte chooses."""
_HEADER: Final = (
    b'{"s":"OPEN","o":"root","t":1700000000000,"l":60000,"p":{"persistent://t/n/x":[1,2]},'
    b'"a":{"persistent://t/n/x":{"s":{"w":[[1,0,3]]}}},"n":{"k":"v"},"r":"why"}'
)


def _value(data: bytes) -> object:
    path = _PATHS[(data[0] if data else 0) % len(_PATHS)]
    kind = kind_of(path)
    require(kind is not None, f"{path} has no kind")
    assert kind is not None, "just asked"
    return look_at(kind, path, data[1:])


def _header(data: bytes) -> object:
    txn = _transaction()
    txn.read(data, 0)
    again = _transaction()
    stored = txn.header()
    again.read(stored, 0)
    require(again.header() == stored, "a header that is stored again is another one")
    txn.check()
    return stored


def _transaction() -> Transaction:
    return Transaction(TxnId(0, 1), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)


def _seeds() -> list[bytes]:
    values = (
        b"{}",
        b"7",
        b"[]",
        b'{"partitions":3}',
        b'{"adminRoles":["a"],"retention_policies":{}}',
        _HEADER,
    )
    return [bytes([number]) + value for number in range(len(_PATHS)) for value in values]


# What is allowed takes seconds and 400 MB: the fuzzer looks for what is worse than its bound.
entry_set_codec._FULL_MAX = 1 << 12  # type: ignore[misc]  # only here

assert {kind_of(path) for path in _PATHS} == set(KINDS), "a kind of value without a path here"

HARNESSES: Final = (
    Harness(
        name="metadata-values",
        run=_value,
        refusals=(MagnetarError,),
        seeds=_seeds,
        words=(b'"adminRoles":', b'"bundles":{"boundaries":[', b"1e999", b"null", b"OPEN", b"\x0a\x02"),
    ),
    Harness(
        name="transaction-headers",
        run=_header,
        refusals=(InvalidHeaderError,),
        seeds=lambda: [
            _HEADER,
            b'{"s":"OPEN","o":"","t":1,"l":0}',
            b'{"s":"COMMITTED","o":"","t":1,"l":1,"p":{"a":[]}}',
        ],
        words=(b'"w":[[', b'"c":', b'"p":{', b"ABORTED", b"1000000000000", b"-1"),
    ),
)
