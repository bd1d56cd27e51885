"""Ctrl-C while a server starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def end_at_once() -> Iterator[None]:
    """Makes SIGINT end the process at once, as SIGTERM does, until the process handles SIGINT itself.

    Python would raise KeyboardInterrupt at an arbitrary place. In a callback of an import, for example,
    Python prints and ignores it, and the server would start.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
