"""A Key_Shared dispatcher's state of each key hash, and the lines of waiting entries."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer, Pending


class KeyState:
    """Owner, entries in flight, and the line of a hash."""

    __slots__ = ("held", "holder", "in_lines", "key_hash", "one_message", "owner", "waiting")

    key_hash: int
    owner: Consumer | None
    """The consumer of the range that contains the hash; None: there is none, or consumers changed since."""
    holder: Consumer | None
    """The consumer with unacknowledged entries of it; None: there is none."""
    held: int
    """Entries that the holder has."""
    waiting: list[Position]
    """Entries that were read and could not be sent, a heap."""
    in_lines: bool
    """Whether it is among the hashes whose lines are tried."""
    one_message: Pending
    """What is noted of an entry of one message: they share it."""

    def __init__(self, key_hash: int) -> None:
        self.key_hash = key_hash
        self.owner = self.holder = None
        self.held = 0
        self.waiting = []
        self.in_lines = False
        self.one_message = Pending(1, key_hash)


class Lines:
    """Entries that were read and could not be sent, in line by hash."""

    __slots__ = ("key_of", "order", "stuck")

    key_of: dict[Position, KeyState]
    """Waiting entry → its hash."""
    order: deque[KeyState]
    """Hashes with waiting entries, in the order in which they are tried; some that have none any more."""
    stuck: tuple[bool, ...] | None
    """Which consumers were ready when every line was tried in vain; to be set to None when anything else
    changes that may free a line."""

    def __init__(self) -> None:
        self.key_of = {}
        self.order = deque()
        self.stuck = None

    def __len__(self) -> int:
        return len(self.key_of)

    def add(self, position: Position, key: KeyState) -> None:
        """Puts an entry in the line of its hash."""
        if not key.in_lines:
            key.in_lines = True
            self.order.append(key)
        heapq.heappush(key.waiting, position)
        self.key_of[position] = key
        self.stuck = None

    def leave(self, position: Position, key: KeyState) -> None:
        """Removes an entry from its line; mostly the first."""
        line = key.waiting
        if line[0] == position:
            heapq.heappop(line)
        else:
            line.remove(position)
            heapq.heapify(line)
        del self.key_of[position]

    def first(
        self, consumers: Sequence[Consumer], taker: Callable[[KeyState], Consumer | None]
    ) -> KeyState | None:
        """A hash whose first waiting entry can be sent; `taker` names the consumer."""
        ready = tuple([consumer.ask_output() for consumer in consumers])
        if ready == self.stuck:
            return None
        for _ in range(len(self.order)):
            key = self.order[0]
            if not key.waiting:
                self.order.popleft()
                key.in_lines = False
            elif taker(key) is not None:
                return key
            else:
                self.order.rotate(-1)
        self.stuck = ready
        return None

    def clear(self) -> None:
        """Nothing waits any more; the hashes are to be forgotten, too."""
        self.key_of.clear()
        self.order.clear()
        self.stuck = None

    def check(self, keys: Iterable[KeyState]) -> None:
        """Asserts what must always hold; `keys` are all that are known."""
        known = list(keys)
        assert self.key_of == {position: key for key in known for position in key.waiting}
        assert all(key.in_lines == (key in self.order) for key in known)
        assert all(key.in_lines for key in self.key_of.values())
