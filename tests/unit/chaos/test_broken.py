"""The rules that the rig breaks on purpose are in the sources where it looks for them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from chaos.broken import BREAKS

SOURCES = Path(__file__).parents[3] / "src" / "magnetar"


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_the_change_fits(name: str) -> None:
    chosen = BREAKS[name]
    text = (SOURCES / chosen.file).read_text(encoding="utf-8")
    assert text.count(chosen.old) == 1
    ast.parse(text.replace(chosen.old, chosen.new))
