"""Under which licences the packages of the lock come, and whether we may use them so.

requirements/licences.toml
allowed                  SPDX ids that need no further word
[packages]               NAME = SPDX expression, where a package's own metadata is vague or it is not here
[exceptions]             NAME = why it may be used although its licence is not allowed
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from supply.lock import Locked

FILE = Path("requirements") / "licences.toml"

_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_WORDS = {
    "MIT": "MIT",
    "MIT License": "MIT",
    "Apache-2.0": "Apache-2.0",
    "BSD-3-Clause": "BSD-3-Clause",
    "MPL-2.0": "MPL-2.0",
}
"""What some write for a licence and is not ambiguous; "BSD" is."""


class LicenceError(Exception):
    """A licence is not known, or not allowed; says of which package and what to do."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be used."""

    allowed: frozenset[str]
    packages: dict[str, str] = field(default_factory=dict)
    exceptions: dict[str, str] = field(default_factory=dict)


def read_rules(text: str) -> Rules:
    """Raises ValueError, KeyError for another kind of file."""
    found = tomllib.loads(text)
    return Rules(frozenset(found["allowed"]), found.get("packages", {}), found.get("exceptions", {}))


def said(package: metadata.PackageMetadata) -> str:
    """The SPDX expression that a package's metadata says beyond doubt, else ""."""
    for expression in package.get_all("License-Expression") or ():
        return str(expression)
    for word in package.get_all("License") or ():
        if known := _WORDS.get(word.strip()):
            return known
    named = {
        _CLASSIFIERS.get(each.rpartition("::")[2].strip(), "")
        for each in package.get_all("Classifier") or ()
        if each.startswith("License ::")
    }
    return named.pop() if len(named) == 1 else ""


def licences(locked: Sequence[Locked], rules: Rules) -> dict[str, str]:
    """The licence of each package, by name. Raises LicenceError for all that are not known or not allowed."""
    found, wrong = {}, []
    for name in sorted({each.name for each in locked}):
        expression = rules.packages.get(name) or _installed(name)
        if not expression:
            wrong.append(f"{name}: its licence is not known; look it up and write it into {FILE}")
            continue
        found[name] = expression
        if not is_allowed(expression, rules.allowed) and name not in rules.exceptions:
            wrong.append(f"{name}: {expression} is not among the licences that {FILE} allows")
    unknown = sorted((rules.packages.keys() | rules.exceptions.keys()) - {each.name for each in locked})
    wrong += [f"{name} stands in {FILE} and not in the lock; remove it" for name in unknown]
    if wrong:
        raise LicenceError("; ".join(wrong))
    return found


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Of `A OR B` one must be allowed, of `A AND B` both; without parentheses AND binds, as in SPDX."""
    if "(" in expression:
        return False
    return any(
        all(part.strip() in allowed for part in re.split(r"\bAND\b", choice))
        for choice in re.split(r"\bOR\b", expression)
    )


def _installed(name: str) -> str:
    try:
        return said(metadata.metadata(name))
    except metadata.PackageNotFoundError:
        return ""
