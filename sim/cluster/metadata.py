"""What the store holds of ledgers, watched: what must never be written there, and what it says at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.base.ids import LedgerId
from magnetar.ledger.autorecovery.fragments import Fragment, fragments_of
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState, decode_ledger_metadata
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from sim.cluster.history import History

_ORDER = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)


class LedgerWatch:
    """The metadata of every ledger, as last written."""

    def __init__(
        self,
        tree: BookKeeperTree,
        history: History,
        holds: Callable[[str, LedgerId, int], bool],
    ) -> None:
        """`holds`: whether a bookie has an entry of a ledger on its disk."""
        self._tree = tree
        self._holds = holds
        self._history = history
        self.ledgers: dict[LedgerId, LedgerMetadata] = {}

    def written(self, path: str, data: bytes | None) -> None:
        """From the store, for every change."""
        ledger_id = self._tree.ledger_id_of(path)
        if ledger_id is None:
            return
        if data is None:
            self.ledgers.pop(ledger_id, None)
            return
        new = decode_ledger_metadata(data)
        old = self.ledgers.get(ledger_id)
        if old is not None:
            self._compare(ledger_id, old, new)
        self._check(ledger_id, new)
        self.ledgers[ledger_id] = new
        self._history.note("ledger", ledger_id, new.state.name, new.end, new.ensembles)

    def _compare(self, ledger_id: LedgerId, old: LedgerMetadata, new: LedgerMetadata) -> None:
        if old.end is not None and old.end != new.end:
            self._history.violation("one end", f"ledger {ledger_id}: {old.end} became {new.end}")
        if _ORDER.index(new.state) < _ORDER.index(old.state):
            self._history.violation("states", f"ledger {ledger_id}: {old.state} became {new.state}")

        for old_part, new_part in zip(fragments_of(old), fragments_of(new), strict=False):
            if old_part.first == new_part.first and old_part.last is not None:
                self._moved(ledger_id, old_part, new_part.members)

    def _moved(self, ledger_id: LedgerId, fragment: Fragment, members: Sequence[str]) -> None:
        """Checks that a new member of a complete fragment has the entries of its place."""
        for index, bookie in enumerate(members):
            if bookie != fragment.members[index]:
                lacks = [
                    entry_id
                    for entry_id in fragment.entries(index)
                    if not self._holds(bookie, ledger_id, entry_id)
                ]
                if lacks:
                    detail = f"{bookie} takes a place in ledger {ledger_id} and lacks {lacks}"
                    self._history.violation("places", detail)

    def _check(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        starts = [first for first, _ in metadata.ensembles]
        if starts != sorted(set(starts)) or starts[0] != 0:
            self._history.violation("ensembles", f"ledger {ledger_id}: they begin at {starts}")
        for _, members in metadata.ensembles:
            if len(set(members)) != len(members):
                self._history.violation("ensembles", f"ledger {ledger_id}: {members}")
