"""A bookie that lost messages takes new ones again: the file READMIT of its store's folder.

A bookie that may have had ledgers that it does not know takes no entries: it may have forgotten fences, and
its "no such ledger" would end a recovery early. Ledgers that come later it cannot have lost. So it takes
entries again when every ledger that there was is named to it: each is in limbo here, fenced, never denied.

    {"ledgers": [17, 18]}      all that the cluster's metadata names; written while the bookie does not run
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.bookie.network.states import all_in_limbo, with_limbo
from magnetar.bookie.served import StoredLedger
from magnetar.runtime.durable_file import sync_folder, write_durably

READMIT_FILE: Final = "READMIT"


def write_readmission(folder: Path, ledgers: Collection[int]) -> None:
    """The bookie of this folder takes entries again from its next start on. Durable; raises OSError."""
    write_durably(folder / READMIT_FILE, json.dumps({"ledgers": sorted(ledgers)}).encode())


def read_readmission(folder: Path) -> frozenset[int] | None:
    """The ledgers that there were; None where nobody wants anything. Raises StartupError."""
    file = folder / READMIT_FILE
    try:
        return frozenset(map(int, json.loads(file.read_bytes())["ledgers"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartupError(f"{file} cannot be read: delete it, and say so again ({error})") from error


def forget_readmission(folder: Path) -> None:
    """It is noted. Raises OSError."""
    file = folder / READMIT_FILE
    if file.exists():
        file.unlink()
        sync_folder(folder)


def readmitted(known: Mapping[int, StoredLedger], ledgers: Collection[int]) -> dict[int, StoredLedger]:
    """What the bookie knows from then on: no ledger that there was is certain."""
    return {ledger.ledger_id: ledger for ledger in with_limbo(all_in_limbo(known), sorted(ledgers))}
