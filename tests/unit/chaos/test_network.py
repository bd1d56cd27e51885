"""The filter of a link, run as the kernel runs it."""

from __future__ import annotations

import pytest
from chaos.network import bytecode

HUB = "10.66.0.254"
PASS, DROP = 0xFFFFFFFF, 2
LOAD, LOAD_HALF, EQUAL, GREATER, RETURN = 0x20, 0x28, 0x15, 0x25, 0x06
CHANCE = 0xFFFFF038
"""Offset at which classic BPF loads a random number."""


def verdict(code: str, source: str, *, ethertype: int = 0x0800, chance: int = 0) -> int:
    """What the program answers about a packet."""
    count, *rows = code.rstrip(",").split(",")
    program = [tuple(map(int, row.split())) for row in rows]
    assert len(program) == int(count)
    at = accumulator = 0
    while True:
        operation, when_true, when_false, operand = program[at]
        at += 1
        if operation == RETURN:
            return operand
        if operation == LOAD_HALF:
            assert operand == 12
            accumulator = ethertype
        elif operation == LOAD:
            assert operand in (26, CHANCE)
            octets = int.from_bytes(bytes(map(int, source.split("."))), "big")
            accumulator = octets if operand == 26 else chance
        else:
            assert operation in (EQUAL, GREATER)
            holds = accumulator == operand if operation == EQUAL else accumulator > operand
            at += when_true if holds else when_false


def test_packets_of_the_sources_are_dropped_and_no_others() -> None:
    code = bytecode(["10.66.0.1", "10.66.0.3"], 0, HUB)
    assert verdict(code, "10.66.0.1") == verdict(code, "10.66.0.3") == DROP
    assert verdict(code, "10.66.0.2") == verdict(code, HUB) == PASS


def test_what_is_not_ipv4_passes() -> None:
    """Questions for the address of a link layer are among it."""
    assert verdict(bytecode(["10.66.0.1"], 100, HUB), "10.66.0.1", ethertype=0x0806) == PASS


@pytest.mark.parametrize(("percent", "lost"), [(0, 0), (10, 10), (30, 30), (100, 100)])
def test_a_share_is_lost_but_nothing_of_the_rig(percent: float, lost: int) -> None:
    code = bytecode([], percent, HUB)
    chances = [number * (1 << 32) // 100 + 1 for number in range(100)]
    got = [verdict(code, "10.66.0.2", chance=chance) for chance in chances]
    assert got.count(DROP) == lost
    assert all(verdict(code, HUB, chance=chance) == PASS for chance in chances)
