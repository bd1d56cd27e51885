"""The lock file: exact versions and hashes of everything that is installed from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LOCK = Path("requirements") / "lock.txt"


@dataclass(frozen=True, slots=True)
class Locked:
    """One package."""

    name: str
    """As packages compare it: lower case, runs of -_. are one dash."""
    version: str
    marker: str
    """Where it is wanted; "": everywhere."""
    hashes: tuple[str, ...]
    """SHA-256 of each of its files, in hexadecimal, sorted."""


def canonical(name: str) -> str:
    """A package's name as it compares. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str) -> list[Locked]:
    """Raises ValueError for a line that pins no version, and for a package without hashes."""
    found = []
    for block in re.split(r"(?<!\\)\n", text):
        words = block.replace("\\\n", " ").strip()
        if not words or words.startswith("#"):
            continue
        head, *hashes = re.split(r"\s--hash=sha256:", words)
        requirement, _, marker = head.partition(";")
        name, equals, version = requirement.strip().partition("==")
        if not equals or not hashes:
            raise ValueError(f"{head.strip()!r} names no version, or no hash")
        digests = tuple(sorted(each.strip() for each in hashes))
        found.append(Locked(canonical(name), version.strip(), marker.strip(), digests))
    return found
