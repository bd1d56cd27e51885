"""Which members of an ensemble have failed, and which are being replaced just now.

One replacement at a time: what fails meanwhile waits for the next one. A bookie that failed is not chosen
again.

Source: BookKeeper replication protocol, ensemble change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.ledger.quorum.effects import ChooseBookies


class Replacing:
    """The failed members of one client's ensemble."""

    __slots__ = ("_banned", "_failed", "absent", "leaving")

    leaving: dict[int, str]
    """Members that are being replaced, by index; empty without a replacement."""
    absent: dict[int, str]
    """Members that failed, cannot be replaced, and are not needed for now."""

    def __init__(self) -> None:
        self._failed: dict[int, str] = {}
        self._banned: set[str] = set()
        self.leaving = {}
        self.absent = {}

    def is_out(self, index: int) -> bool:
        """Whether the member at `index` gets no more adds: it is being replaced, or may come back."""
        return index in self._failed or index in self.leaving or index in self.absent

    def fail(self, index: int, bookie: str) -> None:
        """The member at `index` has failed."""
        self._banned.add(bookie)
        # Its adds fail piece by piece; the first failure counts.
        if bookie not in (self.leaving.get(index), self.absent.get(index)):
            self._failed[index] = bookie

    def spare(self, index: int, bookie: str) -> None:
        """The member at `index` has failed and is not needed; it is not to be replaced yet."""
        self.absent[index] = bookie

    def lose_patience(self) -> None:
        """The members that were not needed are to be replaced as well."""
        self._failed |= self.absent
        self.absent = {}

    def begin(self, ensemble: Sequence[str]) -> list[ChooseBookies]:
        """Begins to replace the failed members, unless there are none or a replacement is under way."""
        if self.leaving or not self._failed:
            return []
        self.leaving, self._failed = self._failed, {}
        return [ChooseBookies(dict(self.leaving), frozenset(self._banned | set(ensemble)))]

    def narrow(self, chosen: Mapping[int, str]) -> list[int]:
        """Only these have a successor. The others, which are returned, stay, and fail again if they must."""
        staying = [index for index in self.leaving if index not in chosen]
        for index in staying:
            del self.leaving[index]
        return staying

    def do_without(self) -> None:
        """The leaving members cannot be replaced; the others go on."""
        self.absent |= self.leaving
        self.leaving = {}

    def take_back(self) -> dict[int, str]:
        """The members that were not needed are members again, and fail again if they must."""
        absent, self.absent = self.absent, {}
        return absent

    def end(self, ensemble: Sequence[str]) -> None:
        """The replacement is complete; `ensemble` is the new one."""
        self.leaving = {}
        self._failed = {index: bookie for index, bookie in self._failed.items() if ensemble[index] == bookie}
        self.absent = {index: bookie for index, bookie in self.absent.items() if ensemble[index] == bookie}

    def check(self) -> None:
        """Asserts what must always hold."""
        assert not self.leaving.keys() & self._failed.keys(), "it is replaced already"
        assert not self.leaving.keys() & self.absent.keys(), "it is replaced, and done without"
        assert not self._failed.keys() & self.absent.keys(), "it is to be replaced, and done without"
