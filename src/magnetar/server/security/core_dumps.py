"""Keeps what a process has in its memory out of core dumps: keys, passwords, tokens."""

from __future__ import annotations

import logging
import resource
from typing import Final

_log = logging.getLogger("magnetar.server")

_NONE: Final = 1
"""Too few bytes for a file, and the one limit at which Linux starts no program that takes the dump either; 0
would start it. Source: core(5), fs/coredump.c."""


def forbid() -> None:
    """From now on neither this process nor its children leave a core dump.

    To get one, raise the limit of the running process: prlimit --core.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    least = _NONE if hard == resource.RLIM_INFINITY else min(_NONE, hard)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (least, hard))
    except (ValueError, OSError) as error:
        # A server without this protection is better than none; the log names the danger.
        _log.warning("core dumps, which may contain keys, cannot be turned off: %s", error)
