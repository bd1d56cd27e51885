"""What docs/internals/house-promises.md says and no other test holds: ids are types of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from support.sources import PACKAGE, modules, nodes

IDS: Final = {
    "ledger_id": "LedgerId",
    "producer_id": "ProducerId",
    "consumer_id": "ConsumerId",
    "request_id": "RequestId",
}
"""Names of parameters and attributes, and what they hold."""

OTHERS: Final = {
    "wire/bookkeeper/requests.py": "BookKeeper's batch reads have request ids of their own",
    "wire/bookkeeper/responses.py": "as their requests",
}


def plain_ids(walked: list[ast.AST]) -> Iterator[str]:
    """Parameters and attributes that are named after an id and hold a bare number."""
    for node in walked:
        given: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            given = [(each.arg, each.annotation) for each in every]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            given = [(name, node.annotation)]
        for name, kind in given:
            words = {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)} if kind else set()
            if name in IDS and "int" in words:
                yield name


def test_ids_are_types_of_their_own() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in modules() for _ in plain_ids(list(nodes(path)))}
    assert sorted(found) == sorted(OTHERS), "use the types of base/ids.py"


def test_the_rule_of_ids_sees() -> None:
    source = "def f(self, ledger_id: int | None, *, entry_id: int) -> None: ...\nrequest_id: int = 3\n"
    assert sorted(plain_ids(list(ast.walk(ast.parse(source))))) == ["ledger_id", "request_id"]
