"""Copies of many megabytes that do not keep the interpreter's lock for all of their time (pure)."""

from __future__ import annotations

import io
from typing import Final

_LARGE_BYTES: Final = 1 << 20
"""Bytes of a copy that takes a millisecond at most; larger ones are made of several."""


def as_bytes(data: bytearray | memoryview) -> bytes:
    """The bytes of `data`.

    One copy of 64 MiB keeps the lock for 30 to 100 ms, also in a thread, and the event loop waits for it.
    Between two pieces of a copy other threads get the lock.
    """
    if len(data) <= _LARGE_BYTES:
        return bytes(data)
    # It gives away its buffer when that is exactly full: there is no second copy.
    made = io.BytesIO()
    with memoryview(data) as view:
        for at in range(0, len(view), _LARGE_BYTES):
            made.write(view[at : at + _LARGE_BYTES])
    return made.getvalue()
