"""Where ledgers stand below the root of BookKeeper's tree, and which layout a tree has.

    <root>/LAYOUT       "2" LF <factory class> ":" <version of the ledger manager>

    hierarchical        ids below 2^31 - 1: 00/0000/L0001 (ten digits split 2/4/4), others as below
    longhierarchical    000/0000/0000/0000/L0001 (nineteen digits split 3/4/4/4/4)
    legacyhierarchical  ids below 2^31 - 1 only, ten digits split 2/4/4
    flat                L0000000001 (ten digits)

Source: BookKeeper's ledger managers.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId

SHORT_ID_END: Final = (1 << 31) - 1
"""First id that has the long path."""

LONG_ID_END: Final = 1 << 63

LAYOUT_VERSION: Final = 2
"""Version of the form of the LAYOUT node."""

MANAGER_VERSION: Final = 1

_PACKAGE: Final = "org.apache.bookkeeper.meta."


class LayoutError(MetadataError):
    """The tree has a layout that this version does not know, or another layout than the caller named."""


class LedgerLayout(Enum):
    """How a ledger's id maps to a path; the value is the name in metadata service URIs."""

    FLAT = "flat"
    LEGACY_HIERARCHICAL = "legacyhierarchical"
    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"

    @property
    def factory(self) -> str:
        """Class name that stands for the layout in the LAYOUT node."""
        return _FACTORIES[self]

    @property
    def id_end(self) -> int:
        """The first id that is too large."""
        return LONG_ID_END if self in _LONG else SHORT_ID_END

    def path(self, ledger_id: LedgerId) -> str:
        """The ledger's path below the root, without a leading slash, for 0 <= `ledger_id` < `id_end`."""
        assert 0 <= ledger_id < self.id_end
        if self is LedgerLayout.FLAT:
            return f"L{ledger_id:010d}"
        if ledger_id < SHORT_ID_END and self is not LedgerLayout.LONG_HIERARCHICAL:
            digits = f"{ledger_id:010d}"
            return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
        digits = f"{ledger_id:019d}"
        return f"{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"

    def ledger_id_of(self, path: str) -> LedgerId | None:
        """The inverse of `path`; None for any other path."""
        digits = "".join(path.split("/")).replace("L", "", 1)
        if not (digits.isascii() and digits.isdigit()):
            return None
        ledger_id = LedgerId(int(digits))
        return ledger_id if ledger_id < self.id_end and self.path(ledger_id) == path else None

    def is_folder(self, path: str) -> bool:
        """Whether ledgers may lie below this path (relative to the root, without a leading slash)."""
        parts = path.split("/")
        if not all(part.isascii() and part.isdigit() for part in parts):
            return False
        widths = tuple(len(part) for part in parts)
        return any(folders[: len(widths)] == widths for folders in _FOLDERS[self])


_FACTORIES: Final = {
    LedgerLayout.FLAT: f"{_PACKAGE}FlatLedgerManagerFactory",
    LedgerLayout.LEGACY_HIERARCHICAL: f"{_PACKAGE}LegacyHierarchicalLedgerManagerFactory",
    LedgerLayout.HIERARCHICAL: f"{_PACKAGE}HierarchicalLedgerManagerFactory",
    LedgerLayout.LONG_HIERARCHICAL: f"{_PACKAGE}LongHierarchicalLedgerManagerFactory",
}
_BY_FACTORY: Final = {factory: layout for layout, factory in _FACTORIES.items()}
_LONG: Final = frozenset({LedgerLayout.HIERARCHICAL, LedgerLayout.LONG_HIERARCHICAL})

_SHORT_FOLDERS: Final = (2, 4)
_LONG_FOLDERS: Final = (3, 4, 4, 4)
_FOLDERS: Final[dict[LedgerLayout, tuple[tuple[int, ...], ...]]] = {
    LedgerLayout.FLAT: (),
    LedgerLayout.LEGACY_HIERARCHICAL: (_SHORT_FOLDERS,),
    LedgerLayout.HIERARCHICAL: (_SHORT_FOLDERS, _LONG_FOLDERS),
    LedgerLayout.LONG_HIERARCHICAL: (_LONG_FOLDERS,),
}


def encode_layout(layout: LedgerLayout) -> bytes:
    """Value of the LAYOUT node."""
    return f"{LAYOUT_VERSION}\n{layout.factory}:{MANAGER_VERSION}".encode()


def decode_layout(value: bytes) -> LedgerLayout:
    """The layout from the LAYOUT node. Raises LayoutError."""
    version, _, manager = value.decode("utf-8", "replace").strip().partition("\n")
    factory, _, manager_version = manager.strip().partition(":")
    layout = _BY_FACTORY.get(factory)
    if version != str(LAYOUT_VERSION) or layout is None or manager_version != str(MANAGER_VERSION):
        raise LayoutError(f"a layout of ledgers that is not known: {value[:200]!r}")
    return layout
