"""Decisions of an operator about messages whose metadata is in doubt: the file DECISIONS of a folder.

`magnetar storage` writes it; the process that uses the folder carries it out and removes it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.runtime.durable_file import sync_folder

_log = logging.getLogger("magnetar.bookie")

DECISIONS_FILE: Final = "DECISIONS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions of an operator."""

    accept: bool = False
    """Accept the present metadata, whatever it was before."""
    accepted: str = ""
    """Description of the pair that was accepted; empty accepts any."""
    delete: frozenset[LedgerId] = frozenset()
    """Ledgers in quarantine to delete."""
    readmit: frozenset[str] = frozenset()
    """Bookies beside the broker that lost messages and accept entries again from the next start on."""

    def accepts(self, found: str) -> bool:
        """Whether the pair described as `found` is accepted."""
        if self.accept and self.accepted not in ("", found):
            _log.error(
                "the acceptance does not apply, because the data changed after it: accepted %r, found %r",
                self.accepted,
                found,
            )
            return False
        return self.accept


def decode_decisions(data: bytes) -> Decisions:
    """Decodes the file DECISIONS. Raises ValueError."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("the decisions are not an object")
    return Decisions(
        accept=bool(fields.get("accept")),
        accepted=str(fields.get("accepted", "")),
        delete=frozenset(LedgerId(int(each)) for each in fields.get("delete", ())),
        readmit=frozenset(map(str, fields.get("readmit", ()))),
    )


def encode_decisions(decisions: Decisions) -> bytes:
    """Encodes the file DECISIONS."""
    fields = {
        "accept": decisions.accept,
        "accepted": decisions.accepted,
        "delete": sorted(decisions.delete),
        "readmit": sorted(decisions.readmit),
    }
    return json.dumps(fields).encode()


def read_decisions(file: Path) -> Decisions:
    """The open decisions; none when the file cannot be read, which is logged."""
    try:
        return decode_decisions(file.read_bytes())
    except FileNotFoundError:
        return Decisions()
    except (OSError, ValueError, AttributeError, TypeError) as error:
        _log.error("%s cannot be read and is left unchanged: %s", file, error)
        return Decisions()


def forget_decisions(file: Path) -> None:
    """Removes the file once the decisions are carried out. Raises OSError."""
    if file.exists():
        file.unlink()
        sync_folder(file.parent)
