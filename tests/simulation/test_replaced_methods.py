"""The simulator replaces steps of the product's algorithms, never a method that is there for that alone."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from sim.breaking import Mutation
from sim.broker.mutations import BROKER_MUTATIONS
from sim.cluster.mutations import CLUSTER_MUTATIONS
from sim.mutations import LEDGER_MUTATIONS
from sim.owners.mutations import OWNER_MUTATIONS
from sim.several.mutations import SEVERAL_MUTATIONS
from sim.transactions.mutations import TRANSACTION_MUTATIONS

from support.sources import modules

EVERY: Final[list[Mutation]] = [
    *LEDGER_MUTATIONS.values(),
    *CLUSTER_MUTATIONS.values(),
    *OWNER_MUTATIONS.values(),
    *BROKER_MUTATIONS.values(),
    *TRANSACTION_MUTATIONS.values(),
    *SEVERAL_MUTATIONS.values(),
]

REPLACED_MAX: Final = 62
"""Replaced parts of the product: lower it with each rule that is handed in instead."""


THERE_FOR_THAT: Final = {
    "Claims._look_once_more": "its name says why the record is read again; claims take no rules",
    "Participants._settled_in": "the wait of one topic before its part is closed; participants take no rules",
}
"""Exceptions of the second test, each with its reason."""


def replaced() -> Iterator[tuple[Any, str]]:
    """Each class or module of the product with the name that is replaced in it."""
    for mutation in EVERY:
        for owner, name, _ in mutation.replaced:
            place = owner.__module__ if isinstance(owner, type) else owner.__name__
            if place.startswith("magnetar."):
                yield owner, name


def statements(function: Any) -> int:
    """Statements of a function without its docstring."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return len(node.body) - (ast.get_docstring(node) is not None)


def test_rules_that_decide_are_handed_in() -> None:
    assert len(set(replaced())) <= REPLACED_MAX, "hand the rule in, as ledger/quorum/rules.py does"


def test_no_method_is_there_to_be_replaced() -> None:
    """A private method of one statement that is used once would be written where it is used."""
    texts = [path.read_text(encoding="utf-8") for path in modules()]
    trivial = []
    for owner, name in set(replaced()):
        part = vars(owner)[name]
        is_private = inspect.isfunction(part) and name.startswith("_") and not name.endswith("__")
        if is_private and statements(part) == 1:
            uses = sum(len(re.findall(rf"(?<!def )\b{name}\b", text)) for text in texts)
            if uses < 2:
                trivial.append(f"{owner.__name__}.{name}")
    assert sorted(trivial) == sorted(THERE_FOR_THAT)
