"""The node with the ledger's metadata: one value with a version. It never fails, but answers get lost."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.ledger.ledger_metadata import LedgerMetadata
from sim.network import Network, Node
from sim.world import World


class MetadataNode:
    """The metadata store, as far as one ledger needs it."""

    name = "metadata"
    is_up = True

    def __init__(self, world: World, network: Network, value: LedgerMetadata) -> None:
        self._world = world
        self._network = network
        self.value = value
        self.version = 0

    def read(self, client: Node, action: Callable[..., None]) -> None:
        """A client's read arrives; `action` gets value and version."""
        self._network.send(self, client, action, self.value, self.version)

    def write(
        self, client: Node, action: Callable[..., None], value: LedgerMetadata, expected_version: int
    ) -> None:
        """A client's write arrives; `action` gets the new version, or None when it was not written."""
        if expected_version != self.version:
            self._network.send(self, client, action, None)
            return
        self.value = value
        self.version += 1
        self._world.note("metadata", self.version, value.state.name, value.end, value.ensembles)
        self._network.send(self, client, action, self.version)
