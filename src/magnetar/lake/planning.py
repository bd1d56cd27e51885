"""The changes that make a table match a stored list. Pure.

The stored list of ledgers is the truth, and the table follows it. Each change is computed from the present
state of both, so that a change that a crash interrupted is simply computed again.

One race is left: a process that has read an old list may write after another process has deleted objects. So
a table records for each log the version of the list that it has seen (`ListVersion`), in the same commit that
changes files. A process with an older list changes nothing. Before objects are deleted, the table gets a
version greater than the one that still names them (`retired`). Catalogs serialise commits and refuse one that
did not start from the last commit; the change is then computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.lake.lake_values import LakeFile, ListVersion, LogFiles

TOPIC: Final = "magnetar.topic"
"""Property of a table: full name of its topic."""
_SEEN: Final = "magnetar.list."
"""Property of a table, followed by the partition: the `ListVersion` it has seen."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Files to add and paths to remove."""

    add: tuple[LakeFile, ...] = ()
    remove: frozenset[str] = frozenset()
    note: bool = False
    """Whether the version must be recorded although no file changes."""
    replaces: bool = False
    """Whether the added files have exactly the rows of the removed ones. Earlier snapshots then stay, since
    their files still exist."""
    expires: bool = False
    """Whether earlier snapshots must be removed, because their files are about to be deleted."""
    behind: bool = False
    """Whether the table has seen a later list, so that nothing may be changed."""

    @property
    def empty(self) -> bool:
        """Whether the plan changes nothing."""
        return not (self.add or self.remove or self.note)


def property_of(partition: int) -> str:
    """Name of the table's property with the version that it has seen of a partition's list."""
    return f"{_SEEN}{partition}"


def seen(properties: Mapping[str, str]) -> dict[int, ListVersion]:
    """The versions that a table has seen, by partition. An unreadable value counts as never seen."""
    found = {}
    for name, text in properties.items():
        if name.startswith(_SEEN):
            try:
                found[int(name[len(_SEEN) :])] = ListVersion.decode(text)
            except ValueError:  # never seen, as the docstring says: its files are compared again
                continue
    return found


def plan(wanted: LogFiles, there: Iterable[str], known: ListVersion | None) -> Plan:
    """The changes that make the table match `wanted`. `there`: paths of the log in the table's last snapshot.
    `known`: the version that the table has seen; None: none."""
    if known is not None and wanted.version < known:
        return Plan(behind=True)
    present = frozenset(there)
    named = frozenset(file.path for file in wanted.files)
    add = tuple(file for file in wanted.files if file.path not in present)
    remove = present - named
    note = bool(wanted.version.retired) and wanted.version != known
    replaces = bool(add) and bool(remove) and remove <= wanted.replaced
    return Plan(add, remove, note, replaces, expires=note or (bool(remove) and not remove <= wanted.replaced))
