"""Paths of BookKeeper's tree.

    <root>/LAYOUT                       how ledgers' ids become paths: ledger_layouts.py
    <root>/INSTANCEID                   id of the cluster, a UUID as text
    <root>/available/<bookie>           ephemeral: a writable bookie; BookieServiceInfoFormat or nothing
    <root>/available/readonly/<bookie>  ephemeral: a read-only bookie, the same value
    <root>/cookies/<bookie>             which disks belong to the bookie: cookies.py
    <root>/idgen/ID-<n>                 sequential: each node drawn is an id
    <root>/idgen-long/HOB-<high>/ID-<n> sequential: ids of more than 31 bits
    <root>/<digits>/.../L<digits>       ledgers
    <root>/underreplication/...         what auto-recovery works on

Source: BookKeeper's metadata on ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.metadata.bookkeeper.ledger_layouts import LedgerLayout

DEFAULT_ROOT: Final = "/ledgers"

READ_ONLY: Final = "readonly"
"""Child of `available` that holds the read-only bookies."""


@dataclass(frozen=True, slots=True)
class BookKeeperTree:
    """The paths below one root."""

    root: str = DEFAULT_ROOT
    layout: LedgerLayout = LedgerLayout.HIERARCHICAL

    @property
    def layout_node(self) -> str:
        return f"{self.root}/LAYOUT"

    @property
    def instance_id(self) -> str:
        return f"{self.root}/INSTANCEID"

    @property
    def available(self) -> str:
        return f"{self.root}/available"

    @property
    def read_only(self) -> str:
        return f"{self.available}/{READ_ONLY}"

    @property
    def cookies(self) -> str:
        return f"{self.root}/cookies"

    @property
    def id_generator(self) -> str:
        return f"{self.root}/idgen"

    @property
    def long_id_generator(self) -> str:
        return f"{self.root}/idgen-long"

    @property
    def underreplication(self) -> str:
        return f"{self.root}/underreplication"

    def registration(self, bookie_id: str, *, read_only: bool) -> str:
        """The node that a live bookie makes, for writable or read-only bookies."""
        return f"{self.read_only if read_only else self.available}/{bookie_id}"

    def cookie(self, bookie_id: str) -> str:
        return f"{self.cookies}/{bookie_id}"

    def ledger(self, ledger_id: LedgerId) -> str:
        return f"{self.root}/{self.layout.path(ledger_id)}"

    def ledger_id_of(self, path: str) -> LedgerId | None:
        """The inverse of `ledger`; None for any other path."""
        head, separator, rest = path.partition(f"{self.root}/")
        return None if head or not separator else self.layout.ledger_id_of(rest)

    def holds_ledgers(self, path: str) -> bool:
        """Whether nodes of ledgers may lie below the path."""
        return path == self.root or self.layout.is_folder(path.removeprefix(f"{self.root}/"))
