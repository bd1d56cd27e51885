"""The filter of system calls, run by a small machine as the kernel runs it. What it does to real code is
tried in `tests/integration/test_functions_confined.py`."""

from __future__ import annotations

import errno
import struct

import pytest

from magnetar.functions.workers import system_calls
from magnetar.functions.workers.system_calls import program

X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOWED = 0x7FFF0000
EPERM, ENOSYS = (0x00050000 | each for each in (errno.EPERM, errno.ENOSYS))
THREAD = 0x003D0F00
"""Flags with which glibc starts a thread."""
CALLS = {
    "x86_64": {"fork": 57, "vfork": 58, "clone": 56, "clone3": 435, "bpf": 321, "ptrace": 101, "read": 0},
    "aarch64": {"clone": 220, "clone3": 435, "bpf": 280, "ptrace": 117, "read": 63},
}
AUDIT = {"x86_64": X86, "aarch64": ARM}


def answer(steps: bytes, number: int, architecture: int, flags: int = 0) -> int:
    """What the filter answers to a call: jumps, loads and returns of classic BPF."""
    memory = {0: number, 4: architecture, 16: flags}
    place = held = 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", steps, 8 * place)
        place += 1
        if code == 0x20:
            held = memory[value]
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            place += yes if holds else no


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_threads_are_started_and_processes_are_not(machine: str) -> None:
    steps, calls, here = program(machine, starts_processes=False), CALLS[machine], AUDIT[machine]
    for name in ("fork", "vfork"):
        assert name not in calls or answer(steps, calls[name], here) == EPERM
    assert answer(steps, calls["clone"], here, flags=17) == EPERM
    assert answer(steps, calls["clone"], here, flags=THREAD) == ALLOWED
    assert answer(steps, calls["clone3"], here) == ENOSYS, "the library calls clone, whose flags are seen"
    assert answer(steps, calls["read"], here) == ALLOWED


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_where_processes_may_be_started_the_kernel_is_kept_all_the_same(machine: str) -> None:
    steps, calls, here = program(machine, starts_processes=True), CALLS[machine], AUDIT[machine]
    for name in ("fork", "vfork", "clone", "clone3", "read"):
        assert name not in calls or answer(steps, calls[name], here) == ALLOWED
    for name in ("bpf", "ptrace"):
        assert answer(steps, calls[name], here) == EPERM
    assert answer(steps, 425, here) == ENOSYS


def test_the_tables_of_other_architectures_are_no_way_around() -> None:
    steps = program("x86_64", starts_processes=False)
    assert answer(steps, 2, I386) == ENOSYS, "2 is fork there"
    assert answer(steps, 0x40000000 | 57, X86) == ENOSYS
    assert answer(program("aarch64", starts_processes=False), 57, X86) == ENOSYS


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program("riscv64", starts_processes=False) == b""
    monkeypatch.setattr(system_calls.platform, "machine", lambda: "riscv64")
    system_calls.refuse(starts_processes=False)
