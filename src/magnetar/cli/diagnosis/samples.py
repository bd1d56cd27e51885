"""Figures out of Prometheus text, by the labels that one wants."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")

Look = dict[tuple[str, ...], dict[str, float]]
"""Figures by name, of each combination of labels."""


def parsed(text: str, names: Mapping[str, str], labels: tuple[str, ...]) -> Look:
    """Figures of these metrics, under other names, by the values of these labels."""
    found: Look = defaultdict(dict)
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in names:
            continue
        values = {key: _ESCAPE.sub(r"\1", value) for key, value in _LABEL.findall(match[2] or "")}
        if all(label in values for label in labels):
            found[tuple(values[label] for label in labels)][names[match[1]]] = float(match[3])
    return found
