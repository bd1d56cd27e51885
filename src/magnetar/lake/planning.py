"""The changes that make a table match a stored list. Pure.

The stored list of ledgers is the truth, the table follows it, and never the other way round. A change is
computed from the two as they are, so that one that a crash interrupted is simply done again.

One race is left: a process that has read an old list may write after another one has deleted objects. So a
table records for each log which version of the list it has seen (`ListVersion`), in the same commit that
changes files; a process with an older one changes nothing. Before objects are deleted the table gets a
version that is greater than the one that still names them (`retired`). Catalogs serialise commits and refuse
one that did not start from the last, which is then computed again.
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
    """The version is to be noted though no file comes or goes."""
    replaces: bool = False
    """All that goes has become what comes: rows stay, and so do earlier snapshots, whose files are there
    yet."""
    expires: bool = False
    """Files of earlier snapshots are about to be deleted: these snapshots go as well."""
    behind: bool = False
    """The table has seen a later list: nothing may be changed."""

    @property
    def empty(self) -> bool:
        """Whether nothing has to be written."""
        return not (self.add or self.remove or self.note)


def property_of(partition: int) -> str:
    """Name of the property that has what was seen of a partition's list."""
    return f"{_SEEN}{partition}"


def seen(properties: Mapping[str, str]) -> dict[int, ListVersion]:
    """What a table has seen, by partition. What cannot be read counts as never seen."""
    found = {}
    for name, text in properties.items():
        if name.startswith(_SEEN):
            try:
                found[int(name[len(_SEEN) :])] = ListVersion.decode(text)
            except ValueError:  # never seen, as the docstring says: its files are compared again
                continue
    return found


def plan(wanted: LogFiles, there: Iterable[str], known: ListVersion | None) -> Plan:
    """`there` are the paths of the log in the table's last snapshot; `known` is what it has seen."""
    if known is not None and wanted.version < known:
        return Plan(behind=True)
    present = frozenset(there)
    named = frozenset(file.path for file in wanted.files)
    add = tuple(file for file in wanted.files if file.path not in present)
    remove = present - named
    note = bool(wanted.version.retired) and wanted.version != known
    replaces = bool(add) and bool(remove) and remove <= wanted.replaced
    return Plan(add, remove, note, replaces, expires=note or (bool(remove) and not remove <= wanted.replaced))
