"""Folded stacks to a flame graph that is small enough to keep: frames below a share are left out.

A line of folded stacks is `outermost;…;innermost COUNT`. In the picture a frame stands on its caller, its
width is its share of all samples, and its place from left to right says nothing. Pointing at a frame tells
its share. Frames of the import system and idle threads are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 1_200
ROW: Final = 16
SHARE_MIN: Final = 0.003
"""Frames below are not drawn; their time is that of their caller."""
_LETTER: Final = 6.6
_IMPORT: Final = "<frozen importlib"
_IDLE: Final = "_queue_SimpleQueue_get"
"""Where threads of a pool wait for work, which the sampler takes for work."""
_KIND: Final = (
    (re.compile(r"\(magnetar/"), "#e8743b"),
    (re.compile(r"\([\w/.-]+\.py"), "#f2b447"),
    (re.compile(r""), "#9db4c8"),
)
"""Colours: the product, other Python, C and the kernel's entry points."""


@dataclass(slots=True)
class Frame:
    """A function called from the same chain of functions."""

    name: str
    samples: int = 0
    """Its own and those of what it called."""
    callees: dict[str, Frame] = field(default_factory=dict)


def tree(lines: Iterable[str]) -> Frame:
    """All stacks below one root. Raises ValueError for a line that is not a stack."""
    root = Frame("all")
    for line in lines:
        if _IDLE in line:
            continue
        stack, _, count = line.strip().rpartition(" ")
        frame = root
        frame.samples += int(count)
        for name in stack.split(";"):
            if _IMPORT in name:
                continue
            frame = frame.callees.setdefault(name, Frame(name))
            frame.samples += int(count)
    return root


def short(name: str) -> str:
    """A frame's name without what is the same for all, or differs from machine to machine: folders above the
    package, lines of code, command lines of processes."""
    if name.startswith("process "):
        return "sync helper" if "syncer_helper" in name else "broker"
    name = re.sub(r"\((?:[^()]*/)?(?:src|site-packages|lib/python[\d.]+)/", "(", name)
    name = re.sub(r"\(/[^()]*/([^/()]+)\)", r"(\1)", name)
    return re.sub(r":\d+\)$", ")", name)


def merged(frame: Frame) -> Frame:
    """The same with frames joined that `short` makes equal."""
    whole = Frame(short(frame.name), frame.samples)
    for callee in frame.callees.values():
        one = merged(callee)
        known = whole.callees.get(one.name)
        whole.callees[one.name] = one if known is None else _joined(known, one)
    return whole


def _joined(first: Frame, second: Frame) -> Frame:
    both = Frame(first.name, first.samples + second.samples, dict(first.callees))
    for name, callee in second.callees.items():
        known = both.callees.get(name)
        both.callees[name] = callee if known is None else _joined(known, callee)
    return both


def _boxes(frame: Frame, x: float, depth: int, scale: float) -> Iterator[tuple[Frame, float, int]]:
    yield frame, x, depth
    for callee in sorted(frame.callees.values(), key=lambda one: one.name):
        if callee.samples * scale >= SHARE_MIN * WIDTH:
            yield from _boxes(callee, x, depth + 1, scale)
        x += callee.samples * scale


def render(title: str, lines: Iterable[str]) -> str:
    """An SVG of these stacks."""
    root = merged(tree(lines))
    samples = max(1, root.samples)
    boxes = list(_boxes(root, 0.0, 0, WIDTH / samples))
    height = (max(depth for _, _, depth in boxes) + 3) * ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
    out = [
        f'{head} font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="4" y="13">{escape(title)}: {root.samples} samples</text>',
    ]
    for frame, x, depth in boxes:
        share, y = frame.samples / samples, height - (depth + 1) * ROW
        width = max(share * WIDTH - 0.5, 0.5)
        colour = next(colour for pattern, colour in _KIND if pattern.search(frame.name))
        letters = int((width - 4) / _LETTER)
        text = frame.name if len(frame.name) <= letters else frame.name[: max(0, letters - 1)] + "…"
        out.append(
            f"<g><title>{escape(frame.name)} {100 * share:.1f} %</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{colour}"/>'
            + (f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(text)}</text>' if letters > 2 else "")
            + "</g>"
        )
    return "\n".join([*out, "</svg>", ""])
