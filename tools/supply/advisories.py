"""Known faults of the packages of the lock, from a stored list: nothing is asked over the network.

    requirements/advisories.json
    {"date": "YYYY-MM-DD", "advisories": [entries of the OSV format]}

Of an entry `affected[].package`, `ranges` of type ECOSYSTEM and `versions` are read. Source: OSV schema 1.6.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from supply.lock import Locked, canonical

FILE = Path("requirements") / "advisories.json"
OLD_DAYS = 30
_ECOSYSTEM = "PyPI"


@dataclass(frozen=True, slots=True)
class Advisories:
    """The list."""

    date: datetime.date
    """As of when it is."""
    entries: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A package with a known fault."""

    package: str
    version: str
    advisory: str
    fixed: str
    """The lowest version without it, as far as the entry says; "": none is named."""

    def __str__(self) -> str:
        remedy = f"; fixed in {self.fixed}" if self.fixed else ""
        return f"{self.package} {self.version} has {self.advisory}{remedy}"


def read(text: str) -> Advisories:
    """Raises ValueError, KeyError for another kind of list."""
    document = json.loads(text)
    entries = document["advisories"]
    for entry in entries:
        if not entry.get("id") or not isinstance(entry.get("affected"), list):
            raise ValueError(f"an advisory has no id, or says of nothing that it is affected: {entry}")
    return Advisories(datetime.date.fromisoformat(document["date"]), tuple(entries))


def taken(texts: Iterable[str], names: Set[str], date: datetime.date) -> str:
    """The list made of entries that say something of the packages `names`. Raises ValueError for no JSON."""
    kept = [
        entry
        for entry in map(json.loads, texts)
        if any(
            each.get("package", {}).get("ecosystem") == _ECOSYSTEM
            and canonical(each["package"]["name"]) in names
            for each in entry.get("affected", ())
        )
    ]
    lines = ",\n  ".join(json.dumps(each) for each in sorted(kept, key=lambda each: str(each["id"])))
    return f'{{\n "date": "{date}",\n "advisories": [\n  {lines}\n ]\n}}\n'


def matching(locked: Sequence[Locked], advisories: Advisories) -> list[Found]:
    """Every package that the list says something of in just that version. Raises InvalidVersion."""
    by_name: dict[str, list[Locked]] = {}
    for each in locked:
        by_name.setdefault(each.name, []).append(each)
    found = []
    for entry in advisories.entries:
        if "withdrawn" in entry:
            continue
        for affected in entry["affected"]:
            package = affected.get("package", {})
            if package.get("ecosystem") != _ECOSYSTEM:
                continue
            for each in by_name.get(canonical(package["name"]), ()):
                hit, fixed = _affects(affected, Version(each.version))
                if hit:
                    found.append(Found(each.name, each.version, entry["id"], fixed))
    return sorted(found, key=lambda each: (each.package, each.advisory))


def _affects(affected: Mapping[str, Any], version: Version) -> tuple[bool, str]:
    """Whether that version is affected, and from which on it is not."""
    if any(_same(named, version) for named in affected.get("versions", ())):
        return True, ""
    for each in affected.get("ranges", ()):
        if each.get("type") == "ECOSYSTEM" and (hit := _in_range(each["events"], version)):
            return hit
    return False, ""


def _in_range(events: Iterable[Mapping[str, str]], version: Version) -> tuple[bool, str] | None:
    """Events are pairs of introduced and fixed (or last_affected), in the order of versions."""
    inside = False
    for event in events:
        if (introduced := event.get("introduced")) is not None:
            inside = introduced == "0" or Version(introduced) <= version
        elif inside and (fixed := event.get("fixed")) is not None:
            if version < Version(fixed):
                return True, fixed
            inside = False
        elif inside and (last := event.get("last_affected")) is not None:
            if version <= Version(last):
                return True, ""
            inside = False
    return (True, "") if inside else None


def _same(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except InvalidVersion:
        return False
