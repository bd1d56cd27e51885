"""A metadata file with one flipped bit: refused, or the same to every reader."""

from __future__ import annotations

import random
from pathlib import Path

from magnetar.base.errors import CorruptDataError, StartupError, StorageFailedError
from magnetar.metadata.embedded import EmbeddedMetadataStore
from support.embedded_metadata import Row, dump, file_in, fill, session


def test_one_flipped_bit_anywhere_is_refused_or_does_no_harm(tmp_path: Path) -> None:
    """In a key it would make a value vanish, and with it what no other value names."""
    seen: list[list[Row]] = []

    async def look(store: EmbeddedMetadataStore) -> None:
        seen.append(await dump(store))
        assert (await store.put("/ids/n", b"", sequential=True)).path == "/ids/n0000000001"

    session(tmp_path, fill)
    whole = file_in(tmp_path).read_bytes()
    session(tmp_path, look)
    chance = random.Random(7)
    used = [place for place in range(len(whole)) if whole[place]]
    refused = 0
    for place in (*range(16, 100, 2), *chance.sample(used, 200), *chance.sample(range(len(whole)), 50)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        file_in(tmp_path).write_bytes(damaged)
        try:
            session(tmp_path, look)
        except (CorruptDataError, StartupError, StorageFailedError):
            refused += 1
            continue
        assert seen.pop() == seen[0], f"byte {place} of the file"
    assert refused > 120
