"""What Linux offers to confine a process that runs the code of users: Landlock, capabilities, limits. Driver.

A confined process reads and writes the given folders alone, and so do its children; it cannot take that back.
It can neither trace nor signal processes outside, nor read their memory or environment. From Linux 6.7 it
takes no TCP connections, and may be kept to some ports when it makes them.

    landlock_ruleset_attr      handled_access_fs u64 | handled_access_net u64 (ABI 4) | scoped u64 (ABI 6)
    landlock_path_beneath_attr allowed_access u64 | parent_fd i32, packed
    landlock_net_port_attr     allowed_access u64 | port u64
    __user_cap_header          version u32 | pid i32
    __user_cap_data            effective u32 | permitted u32 | inheritable u32, twice

Source: the kernel's userspace-api/landlock.rst; capset(2), prctl(2).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from magnetar.functions.errors import CannotConfineError

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_NET_PORT: Final = 2
_NO_NEW_PRIVS: Final = 38

ABI_MIN: Final = 3
"""Linux 6.2: before it, a confined process could still truncate files elsewhere."""
_ABI_SCOPES: Final = 6
_ABI_NETWORK: Final = 4
_ABI_IOCTL: Final = 5

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_OF_ABI_3: Final = (1 << 15) - 1
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_DEVICE_NODES: Final = 1 << 6 | 1 << 11
_SCOPES: Final = 3
"""No abstract sockets of, and no signals to, processes outside."""

_BIND, _CONNECT = 1, 2
"""TCP alone; the kernel has no rule for UDP."""

_CAPABILITIES_VERSION: Final = 0x20080522
_DAC_OVERRIDE: Final = 1 << 1
"""Kept: without it, root cannot use files of other users in the folders that it may use."""


def abi() -> int:
    """The version of Landlock; 0: there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def confine(reads: Iterable[Path], writes: Sequence[Path], ports: Collection[int] | None = None) -> None:
    """Lets this process read and execute `reads`, and do everything in `writes`; what does not exist is
    passed over. `ports`: those to which it may connect; None: all. Only while it has one thread. Raises
    CannotConfineError."""
    version = abi()
    if version < ABI_MIN:
        raise CannotConfineError(
            "this system has no Landlock, or one that is too old: Linux 6.2 with it switched on is needed"
        )
    if ports is not None and version < _ABI_NETWORK:
        raise CannotConfineError("connections cannot be kept to some ports: Linux 6.7 is needed for it")
    libc = _libc()
    handled = _ALL_OF_ABI_3 | (_IOCTL_DEV if version >= _ABI_IOCTL else 0)
    attributes = struct.pack("=Q", handled)
    if version >= _ABI_NETWORK:
        # Its own listener could take the place of the server's while that one starts again.
        attributes += struct.pack("=Q", _BIND if ports is None else _BIND | _CONNECT)
    if version >= _ABI_SCOPES:
        attributes += struct.pack("=Q", _SCOPES)
    rules = _checked(libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0), "a ruleset")
    try:
        for path in reads:
            _allow(libc, rules, path, _READ)
        for path in writes:
            _allow(libc, rules, path, handled & ~_DEVICE_NODES)
        for port in ports or ():
            rule = struct.pack("=QQ", _CONNECT, port)
            _checked(libc.syscall(_ADD_RULE, rules, _NET_PORT, rule, 0), f"port {port}")
        _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
        _drop_capabilities(libc)
        _checked(libc.syscall(_RESTRICT_SELF, rules, 0), "the restriction")
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # Systems differ in which of these places there are.
    try:
        allowed = access if path.is_dir() else access & _OF_FILES
        rule = struct.pack("=Qi", allowed, descriptor)
        _checked(libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0), str(path))
    finally:
        os.close(descriptor)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root without its powers over the system; others have none."""
    if os.geteuid():
        return
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    data = struct.pack("=6I", _DAC_OVERRIDE, _DAC_OVERRIDE, 0, 0, 0, 0)
    _checked(libc.capset(header, data), "capabilities")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(answer: int, what: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise CannotConfineError(f"{what} is refused: {os.strerror(number)}")
    return answer
