"""Which system calls the code of a function cannot make: seccomp. Driver.

A filter of the kernel answers them with an error, for the process and for what it starts; it cannot be taken
back. Refused are calls that start a process, unless the code may, and calls for which the kernel is attacked
and a function has no use.

    struct sock_filter  code u16 | jt u8 | jf u8 | k u32
    struct sock_fprog   len u16 | padding | filter *
    struct seccomp_data nr i32 | arch u32 | instruction_pointer u64 | args u64[6]

Source: the kernel's userspace-api/seccomp_filter.rst; seccomp(2), clone(2), audit.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from magnetar.functions.errors import CannotConfineError

_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_NO_NEW_PRIVS: Final = 38

_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000

_CLONE_THREAD: Final = 0x00010000
_CLONE3: Final = 435
_IO_URING_SETUP: Final = 425
_X32: Final = 0x40000000


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers of calls on one architecture."""

    audit: int
    """AUDIT_ARCH of the architecture."""
    clone: int
    forks: tuple[int, ...]
    attacked: tuple[int, ...]
    """add_key, bpf, keyctl, perf_event_open, ptrace, process_vm_readv and _writev, request_key, setns,
    unshare, userfaultfd."""
    has_x32: bool = False


_KNOWN: Final = {
    "x86_64": _Numbers(
        0xC000003E, 56, (57, 58), (248, 321, 250, 298, 101, 310, 311, 249, 308, 272, 323), has_x32=True
    ),
    "aarch64": _Numbers(0xC00000B7, 220, (), (217, 280, 219, 241, 117, 270, 271, 218, 268, 97, 282)),
}


def program(machine: str, *, starts_processes: bool) -> bytes:
    """The filter for an architecture, as `uname -m` names it; empty: it is not known here (pure)."""
    numbers = _KNOWN.get(machine)
    if numbers is None:
        return b""
    return b"".join(_instructions(numbers, starts_processes=starts_processes))


def _instructions(numbers: _Numbers, *, starts_processes: bool) -> Iterator[bytes]:
    refused = _step(_RETURN, _ERROR | errno.EPERM)
    # Libraries take it for a kernel without the call, and do without.
    unknown = _step(_RETURN, _ERROR | errno.ENOSYS)
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_IF_EQUAL, numbers.audit, yes=1)
    yield unknown  # A call by the table of another architecture would pass under another number.
    yield _step(_LOAD, _NUMBER)
    if numbers.has_x32:
        yield _step(_IF_AT_LEAST, _X32, no=1)
        yield unknown
    for number in numbers.attacked:
        yield _step(_IF_EQUAL, number, no=1)
        yield refused
    yield _step(_IF_EQUAL, _IO_URING_SETUP, no=1)
    yield unknown
    if not starts_processes:
        for number in numbers.forks:
            yield _step(_IF_EQUAL, number, no=1)
            yield refused
        # Its flags lie in memory, where a filter cannot look; the C library then calls clone.
        yield _step(_IF_EQUAL, _CLONE3, no=1)
        yield unknown
        yield _step(_IF_EQUAL, numbers.clone, no=3)
        yield _step(_LOAD, _FIRST_ARGUMENT)
        yield _step(_IF_ANY_BIT, _CLONE_THREAD, yes=1)
        yield refused
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes`, `no`: instructions that a jump passes over."""
    return struct.pack("=HBBI", code, yes, no, value)


def refuse(*, starts_processes: bool) -> None:
    """Installs the filter; does nothing on an architecture that is not known here. Only while the process has
    one thread. Raises CannotConfineError."""
    steps = program(platform.machine(), starts_processes=starts_processes)
    if not steps or not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    held = ctypes.create_string_buffer(steps, len(steps))
    filters = struct.pack("@HxxxxxxP", len(steps) // 8, ctypes.addressof(held))
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _MODE_FILTER, filters, 0, 0):
        raise CannotConfineError(f"a filter of system calls is refused: {os.strerror(ctypes.get_errno())}")
