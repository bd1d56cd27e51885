"""All harnesses, and the corpus that is kept of each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fuzzing import (
    flight_harnesses,
    history_harnesses,
    made_harnesses,
    metadata_harnesses,
    proxy_harnesses,
    store_harnesses,
    text_harnesses,
    wire_harnesses,
)
from fuzzing.harness import Harness

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = ROOT / "tests" / "fuzz" / "corpus"
"""A folder for each harness: findings that were mended, by the name of their cause, and what leads far."""

HARNESSES: Final = {
    harness.name: harness
    for harnesses in (
        wire_harnesses,
        text_harnesses,
        store_harnesses,
        made_harnesses,
        history_harnesses,
        proxy_harnesses,
        metadata_harnesses,
        flight_harnesses,
    )
    for harness in harnesses.HARNESSES
}


def inputs_of(harness: Harness) -> list[bytes]:
    """Its seeds and its corpus, always in the same order."""
    kept = sorted((CORPUS / harness.name).glob("*"))
    return [*harness.seeds(), *(path.read_bytes() for path in kept)]
