"""A bookie's disk: what was synced stays, what was not may stay or not, and bits can flip.

It can be full, fail for a moment, and lie: then a sync returns before anything is on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.served import ServedLedger, Write
from magnetar.wire.bookkeeper.status import Status
from sim.world import World

SYNC_US = 2_000
"""Longest usual sync."""

STALL_US = 80_000
"""Longest sync of a device that stalls: longer than clients wait."""


class _Ledger:
    __slots__ = ("altered", "damaged", "entries", "fenced", "last", "master_key")

    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.entries: dict[int, bytes] = {}
        self.damaged: set[int] = set()
        self.altered: set[int] = set()
        self.fenced = False
        self.last = -1


class Disk:
    """Takes writes in order, makes a group of them durable at a time."""

    def __init__(
        self,
        world: World,
        durable: Callable[[Sequence[int]], None],
        failed: Callable[[Sequence[int], Status], None],
        *,
        stalls: float,
    ) -> None:
        """`durable` gets the tickets of each group, `failed` those that are not kept, with what to answer.

        `stalls`: chance that a sync takes up to `STALL_US`.
        """
        self.is_full = False
        self.fails_next = False
        """Whether the next sync fails: the device must not be used then before the next start."""
        self.lies = False
        self.has_lied = False
        """Whether something is gone that was said to be durable."""
        self._believed: list[Write] = []
        self._stalls = stalls
        self._world = world
        self._durable = durable
        self._failed = failed
        self._waiting: list[Write] = []
        self._syncing: list[Write] = []
        self._ledgers: dict[LedgerId, _Ledger] = {}
        self._life = 0

    def write(self, write: Write) -> None:
        """Takes a write; it is durable when its ticket is."""
        if self.is_full:
            self._world.at(0, self._refuse, self._life, [write], Status.READ_ONLY)
            return
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
        if self.fails_next:
            self.fails_next = False
            # Some of it may be on the device all the same.
            self._refuse(life, self._syncing + self._waiting, Status.IO_ERROR)
            return
        group, self._syncing = self._syncing, []
        for write in group:
            self._apply(write)
        if self.lies:
            self._believed += group
        else:
            # A sync that means it takes along what earlier ones left.
            self._believed.clear()
        if self._waiting:
            self._sync()
        self._durable([write.ticket for write in group])

    def _refuse(self, life: int, writes: Sequence[Write], status: Status) -> None:
        if life == self._life:
            self._failed([write.ticket for write in writes], status)

    def _apply(self, write: Write, count: int | None = None) -> None:
        ledger = self._ledgers.get(write.ledger_id)
        if ledger is None:
            ledger = self._ledgers[write.ledger_id] = _Ledger(write.master_key)
        ledger.fenced = ledger.fenced or write.fence
        pairs = list(zip(write.entry_ids, write.entries, strict=True))
        for entry_id, entry in pairs[:count]:
            ledger.entries[entry_id] = entry
            ledger.damaged.discard(entry_id)
            ledger.altered.discard(entry_id)
            ledger.last = max(ledger.last, entry_id)

    def crash(self) -> None:
        """Power off: of what was not synced, the front part is kept, however long; the last write of it may
        be torn: then of its entries the first ones are there."""
        self._life += 1
        random = self._world.random
        if self._believed:
            kept = random.randint(0, len(self._believed))
            self._take_back(self._believed[kept:])
            self._believed.clear()
        else:
            unsynced = self._syncing + self._waiting
            kept = random.randint(0, len(unsynced))
            for write in unsynced[:kept]:
                self._apply(write)
            if kept < len(unsynced) and len((torn := unsynced[kept]).entries) > 1:
                self._apply(torn, random.randrange(len(torn.entries)))
        self._syncing = []
        self._waiting = []

    def _take_back(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.has_lied = True
            ledger = self._ledgers.get(write.ledger_id)
            if ledger is None:
                continue
            for entry_id in write.entry_ids:
                ledger.entries.pop(entry_id, None)
            ledger.last = max(ledger.entries, default=-1)
            ledger.fenced = ledger.fenced and not write.fence
            if not ledger.entries and not ledger.fenced:
                del self._ledgers[write.ledger_id]

    def lose_everything(self) -> None:
        """The device is gone, with all that was synced."""
        self._life += 1
        self._ledgers.clear()
        self._believed.clear()
        self._syncing = []
        self._waiting = []

    def flip_a_bit(self, *, unseen: bool = False) -> bool:
        """Damages one entry for ever; False when there is none. `unseen`: the bookie does not notice."""
        entries = [
            (ledger, entry_id) for ledger in self._ledgers.values() for entry_id in sorted(ledger.entries)
        ]
        if not entries:
            return False
        random = self._world.random
        ledger, entry_id = random.choice(entries)
        if unseen:
            data = bytearray(ledger.entries[entry_id])
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            ledger.entries[entry_id] = bytes(data)
            ledger.altered.add(entry_id)
        else:
            ledger.damaged.add(entry_id)
        return True

    def delete(self, ledger_id: LedgerId) -> None:
        """Forgets a ledger; durable at once."""
        self._ledgers.pop(ledger_id, None)

    def held(self, ledger_id: LedgerId) -> list[int]:
        """Ids of the durable entries of a ledger, in no order."""
        ledger = self._ledgers.get(ledger_id)
        return [] if ledger is None else list(ledger.entries)

    def stored_ledgers(self) -> list[ServedLedger]:
        """What a bookie reads when it starts."""
        return [
            ServedLedger(ledger_id, ledger.master_key, ledger.fenced)
            for ledger_id, ledger in self._ledgers.items()
        ]

    def last_entry(self, ledger_id: LedgerId) -> int:
        """The highest durable entry; -1 when there is none."""
        ledger = self._ledgers.get(ledger_id)
        return -1 if ledger is None else ledger.last

    def is_sound(self, ledger_id: LedgerId, entry_id: int) -> bool:
        """Whether a durable entry is there as it was written."""
        ledger = self._ledgers.get(ledger_id)
        return (
            ledger is not None
            and entry_id in ledger.entries
            and entry_id not in ledger.damaged
            and entry_id not in ledger.altered
        )

    def entry_ranges(self, ledger_id: LedgerId) -> list[range]:
        """Which durable entries there are, ascending."""
        ranges: list[range] = []
        for entry_id in sorted(self.held(ledger_id)):
            if ranges and ranges[-1].stop == entry_id:
                ranges[-1] = range(ranges[-1].start, entry_id + 1)
            else:
                ranges.append(range(entry_id, entry_id + 1))
        return ranges

    def entry(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """A durable entry. Raises CorruptDataError when a bit of it has flipped."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        if entry_id in ledger.damaged:
            raise CorruptDataError("disk", 0, "a bit has flipped", ledger_id)
        return ledger.entries.get(entry_id)
