"""Ctrl-C while a server starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def end_at_once() -> Iterator[None]:
    """Until the process listens to SIGINT itself, it ends by it at once, as by SIGTERM.

    Python would raise KeyboardInterrupt wherever it is. In the callbacks of an import, say, that is printed
    and forgotten, and the server starts all the same.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
