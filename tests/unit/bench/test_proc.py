"""Usage of a process tree from the text of /proc."""

from __future__ import annotations

import os

import pytest
from bench import machine, proc

LINE = (
    "4242 (a (b) c) S 17 4242 4242 0 -1 4194560 1000 0 0 0 "
    "250 50 30 20 20 0 7 0 123456 1048576 300 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
)


def stat(pid: int, parent: int) -> proc.ProcessStat:
    return proc.ProcessStat(pid, parent, cpu_s=1.0, threads=1, rss_bytes=1)


def test_a_name_with_spaces_and_parentheses_does_not_move_the_fields() -> None:
    found = proc.parse_stat(LINE)
    assert (found.pid, found.parent, found.threads) == (4242, 17, 7)
    assert found.cpu_s == (250 + 50 + 30 + 20) / proc.TICKS_PER_S
    assert found.rss_bytes == 300 * proc.PAGE_BYTES


def test_the_tree_holds_descendants_of_every_generation_and_nobody_else() -> None:
    stats = [stat(1, 0), stat(30, 20), stat(20, 10), stat(10, 1), stat(11, 1), stat(21, 10)]
    assert {s.pid for s in proc.tree(10, stats)} == {10, 20, 21, 30}
    assert proc.tree(99, stats) == []


def test_this_process_has_a_usage_and_one_that_is_not_there_has_none() -> None:
    used = proc.usage(os.getpid())
    assert used.rss_bytes > 0
    assert used.threads >= used.processes >= 1
    with pytest.raises(ProcessLookupError):
        proc.usage(2**31 - 1)


def test_the_time_of_the_machine_leaves_out_idling_and_interrupts() -> None:
    text = "cpu  100 20 30 4000 500 60 70 8 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert proc.parse_machine_cpu_s(text) == (100 + 20 + 30 + 8) / proc.TICKS_PER_S
    assert proc.machine_cpu_s() > 0


def test_the_machine_is_read_from_proc() -> None:
    assert machine.cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 9V74\n") == "AMD EPYC 9V74"
    assert machine.cpu_model("") == "unknown"
    assert machine.memory_bytes("MemFree: 1 kB\nMemTotal:  2048 kB\n") == 2 << 20


def test_the_file_system_is_that_of_the_deepest_mount() -> None:
    mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /data tmpfs rw 0 0\n/dev/vdb /data/my\\040logs xfs rw 0 0\n"
    for folder, expected in (
        ("/home/x", "ext4 on /dev/vda"),
        ("/data", "tmpfs on tmpfs"),
        ("/database", "ext4 on /dev/vda"),
        ("/data/my logs/a", "xfs on /dev/vdb"),
    ):
        assert machine.file_system(mounts, machine.Path(folder)) == expected
