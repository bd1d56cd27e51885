"""Which functions of a source are there to look at something: properties, and predicates by their names."""

from __future__ import annotations

import ast
from typing import Final

ASKING: Final = {
    *(
        "are",
        "can",
        "does",
        "had",
        "has",
        "is",
        "may",
        "might",
        "must",
        "needs",
        "no",
        "should",
        "was",
        "within",
    ),
}
"""First words of predicates. So are verbs in the third person: `matches`, `opens_to`."""


def is_setter(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one).endswith(".setter") for one in function.decorator_list)


def is_property(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) == "property" for one in function.decorator_list)


def is_predicate(function: ast.FunctionDef) -> bool:
    """Whether its name asks and its answer is yes or no."""
    if function.returns is None or ast.unparse(function.returns) != "bool":
        return False
    first, *others = function.name.strip("_").split("_")
    third_person = first.endswith("s") and not first.endswith("ss")
    return first in ASKING or third_person or not {"is", "are", "before"}.isdisjoint(others)
