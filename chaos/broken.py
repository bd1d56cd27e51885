"""Rules of the product that are broken on purpose, to show that the rig notices: `./dev chaos --break RULE`.

The product has no switches for it. The servers run from a copy of the sources in which one place is changed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Break:
    """One rule, and what stands in its place."""

    what: str
    file: str
    """Below src/magnetar."""
    old: str
    """Text that occurs there once."""
    new: str


BREAKS: Final = {
    "early receipts": Break(
        "messages are acknowledged before a bookie has them",
        "ledger/quorum/quorum_writer.py",
        """            self._length_bytes = lengths[-1]
        return self._send(added)
""",
        """            self._length_bytes = lengths[-1]
            self._pending.confirm_to(self._pending.last)
            return [*self._send(added), Advance(self._pending.confirmed)]
        return self._send(added)
""",
    ),
    "duplicates": Break(
        "deduplication lets everything pass",
        "broker/dedup/dedup_state.py",
        "            duplicate = sequence <= pushed\n",
        "            duplicate = False\n",
    ),
    "no fence": Break(
        "a bookie takes entries of a former owner behind its fence",
        "bookie/known_ledger.py",
        "        return not ledger.fenced or run.recovery\n",
        "        return True\n",
    ),
}


def broken_sources(name: str, folder: Path) -> Path:
    """A copy of the sources in `folder`, with this rule broken; without compiled modules. Raises ValueError
    when the change does not fit the sources of today."""
    chosen = BREAKS[name]
    copy = folder / "src"
    shutil.copytree(_ROOT / "src", copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    path = copy / "magnetar" / chosen.file
    text = path.read_text(encoding="utf-8")
    if text.count(chosen.old) != 1:
        raise ValueError(f"{name}: its text occurs {text.count(chosen.old)} times in {chosen.file}")
    path.write_text(text.replace(chosen.old, chosen.new), encoding="utf-8")
    return copy
