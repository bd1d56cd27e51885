"""Prevents core dumps, which would hold keys, passwords and tokens of the process."""

from __future__ import annotations

import logging
import resource
from typing import Final

_log = logging.getLogger("magnetar.server")

_NONE: Final = 1
"""Limit in bytes. It is too small for a file, and at exactly 1 Linux does not start a program that takes the
dump either; at 0 it would. Source: core(5), fs/coredump.c."""


def forbid() -> None:
    """Prevents core dumps of this process and its children.

    To get one, raise the limit of the running process: prlimit --core.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    least = _NONE if hard == resource.RLIM_INFINITY else min(_NONE, hard)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (least, hard))
    except (ValueError, OSError) as error:
        # A server without this protection is better than none; the log names the danger.
        _log.warning("core dumps, which may contain keys, cannot be turned off: %s", error)
