"""A bookie's disk: what was synced stays, what was not may stay or not, and bits can flip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.base.errors import CorruptDataError
from magnetar.bookie.served import StoredLedger, Write
from sim.world import World

SYNC_US = 2_000
"""Longest usual sync."""

STALL_US = 80_000
"""Longest sync of a device that stalls: longer than clients wait."""


class _Ledger:
    __slots__ = ("damaged", "entries", "fenced", "last", "master_key")

    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.entries: dict[int, bytes] = {}
        self.damaged: set[int] = set()
        self.fenced = False
        self.last = -1


class Disk:
    """Takes writes in order, makes a group of them durable at a time."""

    def __init__(self, world: World, durable: Callable[[Sequence[int]], None], *, stalls: float) -> None:
        """`durable` gets the tickets of each group; `stalls`: chance that a sync takes up to `STALL_US`."""
        self._stalls = stalls
        self._world = world
        self._durable = durable
        self._waiting: list[Write] = []
        self._syncing: list[Write] = []
        self._ledgers: dict[int, _Ledger] = {}
        self._life = 0

    def write(self, write: Write) -> None:
        """Takes a write; it is durable when its ticket is."""
        self._waiting.append(write)
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        self._syncing, self._waiting = self._waiting, []
        longest_us = STALL_US if self._world.random.random() < self._stalls else SYNC_US
        self._world.at(int(longest_us * self._world.random.random()), self._synced, self._life)

    def _synced(self, life: int) -> None:
        if life != self._life:
            return
        group, self._syncing = self._syncing, []
        for write in group:
            self._apply(write)
        if self._waiting:
            self._sync()
        self._durable([write.ticket for write in group])

    def _apply(self, write: Write) -> None:
        ledger = self._ledgers.get(write.ledger_id)
        if ledger is None:
            ledger = self._ledgers[write.ledger_id] = _Ledger(write.master_key)
        ledger.fenced = ledger.fenced or write.fence
        for entry_id, entry in zip(write.entry_ids, write.entries, strict=True):
            ledger.entries[entry_id] = entry
            ledger.damaged.discard(entry_id)
            ledger.last = max(ledger.last, entry_id)

    def crash(self) -> None:
        """Power off: of what was not synced, the front part is kept, however long."""
        self._life += 1
        unsynced = self._syncing + self._waiting
        for write in unsynced[: self._world.random.randint(0, len(unsynced))]:
            self._apply(write)
        self._syncing = []
        self._waiting = []

    def lose_everything(self) -> None:
        """The device is gone, with all that was synced."""
        self._life += 1
        self._ledgers.clear()
        self._syncing = []
        self._waiting = []

    def flip_a_bit(self) -> bool:
        """Damages one entry for ever; False when there is none."""
        entries = [
            (ledger, entry_id) for ledger in self._ledgers.values() for entry_id in sorted(ledger.entries)
        ]
        if not entries:
            return False
        ledger, entry_id = self._world.random.choice(entries)
        ledger.damaged.add(entry_id)
        return True

    def stored_ledgers(self) -> list[StoredLedger]:
        """What a bookie reads when it starts."""
        return [
            StoredLedger(ledger_id, ledger.master_key, ledger.fenced)
            for ledger_id, ledger in self._ledgers.items()
        ]

    def last_entry(self, ledger_id: int) -> int:
        """The highest durable entry; -1 when there is none."""
        ledger = self._ledgers.get(ledger_id)
        return -1 if ledger is None else ledger.last

    def entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        """A durable entry. Raises CorruptDataError when a bit of it has flipped."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        if entry_id in ledger.damaged:
            raise CorruptDataError("disk", 0, "a bit has flipped", ledger_id)
        return ledger.entries.get(entry_id)
