"""Entries that were sent and are not confirmed: their holders, and how far the ledger is complete.

Source: BookKeeper replication protocol, writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magnetar.ledger.quorum.layout import QuorumLayout


class PendingEntry:
    """One entry under way."""

    __slots__ = ("entry", "entry_id", "holders", "length_bytes")

    entry_id: int
    entry: bytes
    """The stored bytes: head, digest, payload."""
    length_bytes: int
    """Payload bytes of the ledger up to and including this entry."""
    holders: int
    """Bit i: the member at index i of the current ensemble has it."""

    def __init__(self, entry_id: int, entry: bytes, length_bytes: int) -> None:
        self.entry_id = entry_id
        self.entry = entry
        self.length_bytes = length_bytes
        self.holders = 0


class PendingEntries:
    """The entries after the last confirmed one, without gaps."""

    __slots__ = ("_copies_needed", "_entries", "_layout", "confirmed", "confirmed_bytes")

    confirmed: int
    """Last entry that is confirmed, with all before it; -1 when none is."""
    confirmed_bytes: int
    """Payload bytes up to and including `confirmed`."""

    def __init__(
        self, layout: QuorumLayout, confirmed: int = -1, *, copies_needed: int | None = None
    ) -> None:
        """`copies_needed`: members that must have an entry; None: the ack quorum."""
        self._layout = layout
        self._copies_needed = layout.ack_quorum if copies_needed is None else copies_needed
        self._entries: dict[int, PendingEntry] = {}
        self.confirmed = confirmed
        self.confirmed_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PendingEntry]:
        return iter(self._entries.values())

    @property
    def last(self) -> int:
        """The last entry that was added, -1 when there is none."""
        return self.confirmed + len(self._entries)

    def add(self, entry: PendingEntry) -> None:
        """Appends the next entry."""
        assert entry.entry_id == self.last + 1, "a gap"
        self._entries[entry.entry_id] = entry

    def add_all(self, added: Sequence[PendingEntry]) -> None:
        """Appends the next entries, in order."""
        assert not added or added[0].entry_id == self.last + 1, "a gap"
        self._entries.update((entry.entry_id, entry) for entry in added)

    def held(self, index: int, entry_ids: Iterable[int]) -> None:
        """The member at `index` has these entries."""
        assert 0 <= index < self._layout.ensemble_size, f"no member is at {index}"
        bit = 1 << index
        get = self._entries.get
        for entry_id in entry_ids:
            entry = get(entry_id)
            if entry is not None:
                entry.holders |= bit

    def forget(self, index: int) -> None:
        """Another bookie took the place at `index`: it has none of these."""
        keep = ~(1 << index)
        for entry in self._entries.values():
            entry.holders &= keep

    def confirm(self) -> bool:
        """Moves `confirmed` over the entries with enough copies, up to the first gap; returns whether it
        moved."""
        entries = self._entries
        before = self.confirmed
        while True:
            entry = entries.get(self.confirmed + 1)
            if entry is None or entry.holders.bit_count() < self._copies_needed:
                return self.confirmed != before
            del entries[entry.entry_id]
            self.confirmed = entry.entry_id
            self.confirmed_bytes = entry.length_bytes

    def complete_behind(self, entry_id: int) -> int:
        """The last entry after `entry_id` with enough copies, as all between; else `entry_id`."""
        while True:
            entry = self._entries.get(entry_id + 1)
            if entry is None or entry.holders.bit_count() < self._copies_needed:
                return entry_id
            entry_id += 1

    def confirm_to(self, last: int) -> None:
        """Moves `confirmed` to `last`, which was appended."""
        assert self.confirmed <= last <= self.last, f"{last} was not appended, or is confirmed already"
        for entry_id in range(self.confirmed + 1, last + 1):
            self.confirmed_bytes = self._entries.pop(entry_id).length_bytes
            self.confirmed = entry_id

    def missing_at(self, index: int) -> tuple[Sequence[int], Sequence[bytes]]:
        """Ids and bytes of the entries that the member at `index` should have and may lack."""
        bit = 1 << index
        missing = [
            entry
            for entry in self._entries.values()
            if not entry.holders & bit and self._layout.holds(index, entry.entry_id)
        ]
        return [entry.entry_id for entry in missing], [entry.entry for entry in missing]

    def check(self) -> None:
        """Asserts what must always hold."""
        assert list(self._entries) == list(range(self.confirmed + 1, self.last + 1)), "gaps, or out of order"
        length_bytes = self.confirmed_bytes
        for entry_id, entry in self._entries.items():
            assert entry.entry_id == entry_id, "an entry under another id"
            assert entry.length_bytes >= length_bytes, "the ledger became shorter"
            assert not entry.holders >> self._layout.ensemble_size, "a bookie outside of the ensemble has it"
            length_bytes = entry.length_bytes
