"""The engine's tree of a statement: objects, lists, texts and numbers, as its JSON has them."""

from __future__ import annotations

from typing import Any, TypeAlias

Node: TypeAlias = dict[str, Any]
"""One node of the tree, or the whole document."""
