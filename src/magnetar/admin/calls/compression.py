"""Compresses answers with gzip, for clients that accept it (pure)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

BYTES_MIN: Final = 1024
"""Bytes of the smallest answer that is compressed; smaller ones fit into one or two packets."""
_LEVEL: Final = 1
"""The fastest level; JSON and Prometheus text shrink to a tenth with it."""
_STEP_BYTES: Final = 128 << 10
"""Bytes that are compressed at a time, which takes about a millisecond."""
_CODING: Final = re.compile(r"^(gzip|\*)(?:;q=([0-9.]+))?$")


def wants_gzip(accept_encoding: str) -> bool:
    """Whether the header `Accept-Encoding` names gzip. Source: RFC 9110, 12.5.3."""
    for part in accept_encoding.lower().split(","):
        found = _CODING.match(part.replace(" ", ""))
        if found is not None:
            return found[2] is None or found[2].strip("0.") != ""
    return False


def compressing(body: bytes | memoryview) -> Iterator[bytes]:
    """The gzip of `body`, in pieces between which the event loop may get a turn.

    It holds no time, so that equal answers have equal bytes.
    """
    # 16 + 15: gzip's frame, whose time zlib leaves 0, with the largest window.
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for start in range(0, len(body), _STEP_BYTES):
        yield packer.compress(body[start : start + _STEP_BYTES])
    yield packer.flush()
