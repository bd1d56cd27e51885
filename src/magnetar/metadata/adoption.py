"""Clusters of Apache Pulsar that were adopted: their metadata stays where Pulsar has it.

A cluster of ours lies below `/magnetar/CLUSTER`. One that was adopted has only what Pulsar does not know
there; the rest is at Pulsar's paths, beside BookKeeper's tree. The record `/magnetar/CLUSTER/adopted` says
so. Without it brokers neither read nor write what is Pulsar's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from magnetar.metadata.documents import DamagedDocumentError, object_of
from magnetar.metadata.keys import BOOKIE_RACKS
from magnetar.metadata.scoped import ScopedMetadataStore
from magnetar.metadata.store import MetadataStore

_SCOPE: Final = "/magnetar"
RECORD: Final = "/adopted"
"""The record of an adoption, in the cluster's own part of the service."""
PULSAR_PATHS: Final = frozenset(
    {
        "/admin",
        BOOKIE_RACKS,
        "/counters",
        "/loadbalance",
        "/managed-ledgers",
        "/namespace",
        "/schemas",
    }
)
"""What lies where Pulsar has it, with all that is below."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """The record of an adoption."""

    home: str
    """Path below which Pulsar's metadata is; "" for the root of the service."""
    at_ms: int
    """Unix ms."""

    def encode(self) -> bytes:
        """As stored."""
        return json.dumps({"home": self.home, "atMs": self.at_ms}).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Adoption:
        """The inverse of `encode`. Raises DamagedDocumentError."""
        document = object_of(path, data)
        home, at_ms = document.get("home"), document.get("atMs")
        if not isinstance(home, str) or not isinstance(at_ms, int):
            raise DamagedDocumentError(path, "it is not the record of an adoption")
        return cls(home, at_ms)


def home_of(root: str) -> str:
    """Where Pulsar's metadata is when BookKeeper's tree is at `root`, as `Adoption.home`."""
    return root.rpartition("/")[0]


def scope_of(cluster: str) -> str:
    """Where a cluster of ours is."""
    return f"{_SCOPE}/{cluster}"


def pulsar_store(service: MetadataStore, cluster: str, home: str) -> ScopedMetadataStore:
    """The metadata of a cluster with Pulsar's part below `home`."""
    return ScopedMetadataStore(service, scope_of(cluster), beside=PULSAR_PATHS, home=home)


async def store_of_cluster(service: MetadataStore, cluster: str) -> tuple[ScopedMetadataStore, bool]:
    """The metadata of a cluster, and whether it was adopted. Raises MetadataError, DamagedDocumentError."""
    path = scope_of(cluster) + RECORD
    value = await service.get(path)
    if value is None:
        # The racks are the cluster's, for all that use it.
        beside = frozenset({BOOKIE_RACKS})
        return ScopedMetadataStore(service, scope_of(cluster), beside=beside), False
    return pulsar_store(service, cluster, Adoption.decode(path, value.data).home), True
