"""Reads figures from Prometheus text, by selected labels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")

Look = dict[tuple[str, ...], dict[str, float]]
"""Figures by name, for each combination of label values."""


def parsed(text: str, names: Mapping[str, str], labels: tuple[str, ...]) -> Look:
    """The figures of some metrics by the values of `labels`. `names`: new name by metric."""
    found: Look = defaultdict(dict)
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in names:
            continue
        values = {key: _ESCAPE.sub(r"\1", value) for key, value in _LABEL.findall(match[2] or "")}
        if all(label in values for label in labels):
            found[tuple(values[label] for label in labels)][names[match[1]]] = float(match[3])
    return found
