"""The ranges of hashes into which a namespace's topics fall, when nobody names others (pure).

Source: Pulsar divides 2^32, rounds down, and lets the last range end at 0xffffffff.
"""

from __future__ import annotations

from typing import Any, Final

LAST: Final = 0xFFFFFFFF
DEFAULT_BUNDLES: Final = 4
"""Of a namespace that is created without a number, as in Pulsar. One that is there keeps its own."""


def equal_parts(number: int) -> dict[str, Any]:
    """So many bundles of the same size, as a namespace's document has them."""
    size = (LAST + 1) // number
    bounds = [*(size * i for i in range(number)), LAST]
    return {"boundaries": [f"0x{bound:08x}" for bound in bounds], "numBundles": number}
