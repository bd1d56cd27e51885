"""Paths of ledgers in the metadata store.

    /ledgers/00/0000/L0001                ledger 1: ten digits split 2/4/4, for ids below 2^31 - 1
    /ledgers/000/0000/0000/0000/L0001     longer ids: nineteen digits split 3/4/4/4/4
    /ledgers/idgen                        ids below this number (decimal text) are assigned
    /ledgers/INSTANCEID                   identity of the cluster: random UUID text
    /magnetar/generation                  number of raises: `bookie/belonging.py`
    /magnetar/deletions/1                 ledger 1 was deleted, and its entries may still be stored

Source: BookKeeper's hierarchical ledger manager. Its clients draw each id from a sequential node below
`/ledgers/idgen`; drawing ranges from the value of that node itself costs one write per range.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import LedgerId

LEDGERS: Final = "/ledgers"
ID_GENERATOR: Final = "/ledgers/idgen"
INSTANCE_ID: Final = "/ledgers/INSTANCEID"
DELETIONS: Final = "/magnetar/deletions"
SHORT_ID_END: Final = (1 << 31) - 1
"""Ids from here on have the long path."""


def ledger_path(ledger_id: LedgerId) -> str:
    """The ledger's node, for 0 <= `ledger_id` < 2^63."""
    assert 0 <= ledger_id < 1 << 63
    if ledger_id < SHORT_ID_END:
        digits = f"{ledger_id:010d}"
        return f"{LEDGERS}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{LEDGERS}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def deletion_path(ledger_id: LedgerId) -> str:
    """Node of a deliberate deletion, kept until all entries of the ledger are gone."""
    return f"{DELETIONS}/{ledger_id}"


def ledger_id_of(path: str) -> LedgerId | None:
    """The inverse of `ledger_path`; None for any other path."""
    head, separator, rest = path.partition(LEDGERS + "/")
    digits = "".join(rest.split("/")).replace("L", "", 1)
    if head or not separator or not (digits.isascii() and digits.isdigit()):
        return None
    ledger_id = LedgerId(int(digits))
    return ledger_id if ledger_id < 1 << 63 and ledger_path(ledger_id) == path else None
