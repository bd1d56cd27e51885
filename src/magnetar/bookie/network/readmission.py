"""Makes a bookie that lost messages writable again: the file READMIT of its store's folder.

A bookie that may have had ledgers that it does not know refuses entries: it may have forgotten fences, and
its "no such ledger" would end a recovery early. It cannot have lost ledgers that are created later. So it
accepts entries again once all earlier ledgers are named to it: each is in limbo then, fenced and never
denied.

    {"ledgers": [17, 18]}   all that the cluster's metadata names; written while the bookie does not run
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.network.states import all_in_limbo, with_limbo
from magnetar.bookie.served import ServedLedger
from magnetar.runtime.durable_file import sync_folder, write_durably

READMIT_FILE: Final = "READMIT"


def write_readmission(folder: Path, ledgers: Collection[LedgerId]) -> None:
    """Lets the bookie of this folder accept entries again from its next start on. Durable; raises OSError."""
    write_durably(folder / READMIT_FILE, json.dumps({"ledgers": sorted(ledgers)}).encode())


def read_readmission(folder: Path) -> frozenset[LedgerId] | None:
    """The earlier ledgers; None without a file. Raises StartupError."""
    file = folder / READMIT_FILE
    try:
        return frozenset(LedgerId(int(each)) for each in json.loads(file.read_bytes())["ledgers"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartupError(f"{file} cannot be read: delete it, and say so again ({error})") from error


def forget_readmission(folder: Path) -> None:
    """Removes the file once its ledgers are recorded. Raises OSError."""
    file = folder / READMIT_FILE
    if file.exists():
        file.unlink()
        sync_folder(folder)


def readmitted(
    known: Mapping[LedgerId, ServedLedger], ledgers: Collection[LedgerId]
) -> dict[LedgerId, ServedLedger]:
    """The state of the bookie from then on: no earlier ledger is certain."""
    return {ledger.ledger_id: ledger for ledger in with_limbo(all_in_limbo(known), sorted(ledgers))}
