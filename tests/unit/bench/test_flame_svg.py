"""Flame graphs from folded stacks."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from bench.flame_svg import merged, render, short, tree

STACKS = [
    "main (/home/a/src/magnetar/cli/main.py:10);parse (/home/a/src/magnetar/wire/server.py:5) 60",
    "main (/home/a/src/magnetar/cli/main.py:11);parse (/home/a/src/magnetar/wire/server.py:9) 30",
    "main (/home/a/src/magnetar/cli/main.py:11);write (libc.so.6) 9",
    "main (/home/a/src/magnetar/cli/main.py:11);rare<> (x.py:1) 1",
]


def test_frames_count_what_they_called() -> None:
    root = merged(tree(STACKS))
    (main,) = root.callees.values()
    assert (root.samples, main.samples) == (100, 100)
    assert {one.name: one.samples for one in main.callees.values()} == {
        "parse (magnetar/wire/server.py)": 90,
        "write (libc.so.6)": 9,
        "rare<> (x.py)": 1,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f (/x/lib/python3.11/site-packages/click/core.py:3)", "f (click/core.py)"),
        ("f (/x/lib/python3.11/asyncio/events.py:3)", "f (asyncio/events.py)"),
        ("f (/usr/lib/x86/libc.so.6)", "f (libc.so.6)"),
        ("f (magnetar/base/ids.py:7)", "f (magnetar/base/ids.py)"),
        ("<module> (<frozen importlib>:7)", "<module> (<frozen importlib>)"),
        ('process 7:"/home/a/bin/python -m magnetar standalone --data /home/a/d"', "broker"),
        ('process 9:"/home/a/bin/python -I /home/a/magnetar/runtime/syncer_helper.py 15"', "sync helper"),
    ],
)
def test_names_are_short(name: str, expected: str) -> None:
    assert short(name) == expected


def test_the_picture_is_xml_without_what_is_too_small() -> None:
    picture = render("a <case>", [*STACKS, f"{STACKS[0].rpartition(' ')[0]} 10000"])
    ElementTree.fromstring(picture)
    assert "parse (magnetar/wire/server.py) 99.9 %" in picture
    assert "rare" not in picture


def test_nothing_sampled_is_a_picture_too() -> None:
    ElementTree.fromstring(render("idle", ["main (x.py:1) 0"]))
