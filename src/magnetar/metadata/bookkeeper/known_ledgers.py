"""Whether the bookies of a cluster are those that its metadata was written with.

The broker's metadata lies below `/magnetar/CLUSTER`, that of ledgers at the root in `--metadata`. With
another root, or with bookies that were initialized anew, the lists of topics would name ledgers of others:
messages would seem lost, and new ledgers would get ids that topics have already. So the first broker writes
down which bookies they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from magnetar.base.errors import StartupError
from magnetar.metadata.documents import DamagedDocumentError, object_of
from magnetar.metadata.keys import LEDGERS_OF
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore


@dataclass(frozen=True, slots=True)
class KnownLedgers:
    """Which bookies a cluster's ledgers are on."""

    instance: str
    """INSTANCEID of BookKeeper: made when the first bookie was initialized."""
    root: str
    """Root of BookKeeper's tree, for people: the same tree may be reached by another path."""

    def encode(self) -> bytes:
        """As stored."""
        return json.dumps({"instance": self.instance, "root": self.root}).encode()


def decode_known_ledgers(data: bytes, path: str) -> KnownLedgers:
    """The inverse of `KnownLedgers.encode`. Raises DamagedDocumentError."""
    document = object_of(path, data)
    instance, root = document.get("instance"), document.get("root")
    if not isinstance(instance, str) or not isinstance(root, str):
        raise DamagedDocumentError(path, "it does not say which bookies the ledgers are on")
    return KnownLedgers(instance, root)


async def check_known_ledgers(store: MetadataStore, scope: str, now: KnownLedgers) -> None:
    """Writes down which bookies the cluster is on, or compares.

    `store` has the cluster's metadata, `scope` is its path. Raises StartupError when they are others,
    DamagedDocumentError, MetadataError.
    """
    while (found := await store.get(LEDGERS_OF)) is None:
        try:
            await store.put(LEDGERS_OF, now.encode(), expected_version=MUST_NOT_EXIST)
            return
        except BadVersionError:
            # Another broker that starts at the same time was first: its value counts.
            continue
    known = decode_known_ledgers(found.data, LEDGERS_OF)
    if known.instance != now.instance:
        raise StartupError(
            f"{scope} was written with the bookies of {known.root} (instance {known.instance}), and"
            f" --metadata names those of {now.root} (instance {now.instance}), without its messages."
            f" Name {known.root}, or choose another name for a new cluster (--cluster). If the former bookies"
            f" are gone for good with all messages, delete {scope} in the metadata service"
        )
