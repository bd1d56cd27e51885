"""What an operator decides about messages whose metadata is in doubt: the file DECISIONS of a folder.

`magnetar storage` writes it; the process that uses the folder does what it says and removes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

DECISIONS_FILE: Final = "DECISIONS"


@dataclass(frozen=True, slots=True)
class Decisions:
    """What an operator has decided."""

    accept: bool = False
    """The metadata that is there is right, whatever it was before."""
    delete: frozenset[int] = frozenset()
    """Ledgers in quarantine that may go."""


def decode_decisions(data: bytes) -> Decisions:
    """The file DECISIONS. Raises ValueError."""
    fields: Any = json.loads(data)
    return Decisions(bool(fields.get("accept")), frozenset(map(int, fields.get("delete", ()))))


def encode_decisions(decisions: Decisions) -> bytes:
    """The file DECISIONS."""
    return json.dumps({"accept": decisions.accept, "delete": sorted(decisions.delete)}).encode()
