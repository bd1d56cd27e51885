"""What an exception of the user's code means when a limit of the instance is its cause (pure, but for asking
the limits)."""

from __future__ import annotations

import errno
import resource

_MIB = 1 << 20


def described(error: BaseException) -> str:
    """Kind and text of an exception; with a limit that was reached, and how it is raised."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        if limit != resource.RLIM_INFINITY:
            return f"{said} (an instance of this function may use {limit // _MIB} MiB: raise resources.ram)"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"{said} (an instance may have {limit} files and connections open: close some)"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f"{said} (a file may have {limit // _MIB} MiB: raise resources.disk)"
    if isinstance(error, OSError) and error.errno == errno.EPERM:
        return f"{said} (to start processes, the setting functions_start_processes must allow it)"
    return said
