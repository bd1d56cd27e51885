"""Looking has no effect: properties, and predicates by whatever name, change nothing.

A page for operators, a metric or a `check()` looks at things at any time; a look must not change what
happens next. A method that acts and tells how it went has a verb in the imperative (`take_token`,
`begin_one`, `hold_back`), or names an event (`measured`, `committed`).

What the rule sees: an attribute or item that is set, a container that is changed, and calls of what does so:
of the same class or module, and of other objects where every method of that name in the package does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

import pytest

from support.effects import acting_anywhere, acting_names, all_functions, effects
from support.sources import modules, name_of, nodes

MEMOS: Final = {
    "broker/compaction/survivors.py:_is_gone": "what it keeps follows from what was collected before",
}
"""Predicates that keep what they have found, and why that changes no answer."""


def test_looking_has_no_effect() -> None:
    found = {
        f"{name_of(path)}:{each.name}": each.line
        for path in modules()
        for each in effects(all_functions(nodes(path)), set(acting_anywhere()))
    }
    assert {place: line for place, line in found.items() if place not in MEMOS} == {}, (
        "name a method for what it does, and make a property or predicate of what it tells"
    )
    assert sorted(MEMOS.keys() - found.keys()) == [], "these are gone: take them out of MEMOS"


def seen(text: str, acting: Iterable[str] = ()) -> list[tuple[int, str]]:
    functions = list(all_functions(ast.walk(ast.parse(text))))
    return [(each.line, each.name) for each in effects(functions, set(acting))]


@pytest.mark.parametrize(
    "body",
    [
        "self.n += 1", "self.n = 1", "del self.n", "self.n[0] = 1", "self.n.append(1)", "self.b()",
        "for each in self.n:\n            each.seen = True", "n = self.n\n        n.pop()",
        "self.n.get(1).update()", "n = self.get(1)\n        n.pop()", "return [self.b(1) for _ in self.n]",
    ],
)  # fmt: skip
def test_the_rule_about_properties_sees(body: str) -> None:
    text = (
        f"class A:\n    @property\n    def a(self):\n        {body}\n"
        "    def b(self):\n        self.c()\n    def c(self):\n        self.n = 2\n"
    )
    assert seen(text) == [(3, "a")]


@pytest.mark.parametrize(
    "body",
    [
        "return self.n", "n = []\n        n.append(self.n)", "n = sorted(self.n)\n        n.pop()",
        "return self.d()", "n = np.ones(2)\n        n[0] = self.n",
    ],
)  # fmt: skip
def test_the_rule_about_properties_does_not_see(body: str) -> None:
    text = (
        f"class A:\n    @property\n    def a(self):\n        {body}\n    @a.setter\n"
        "    def a(self, n):\n        self.n = n\n    def d(self):\n        return self.n\n"
    )
    assert seen(text) == []


@pytest.mark.parametrize(
    "name", ["is_full", "has_work", "_may_go", "matches", "opens_to", "_no_core_is_left", "used_before"]
)
def test_the_rule_sees_predicates_that_act(name: str) -> None:
    text = f"class A:\n    def {name}(self) -> bool:\n        self.n += 1\n        return True\n"
    assert seen(text) == [(2, name)]
    assert seen(text.replace("self.n += 1", "self.n")) == []
    assert seen(text.replace("-> bool", "-> int")) == []


@pytest.mark.parametrize("name", ["take", "begin_one", "measured", "pass_on", "hold_back"])
def test_the_rule_leaves_commands_alone(name: str) -> None:
    text = f"class A:\n    def {name}(self) -> bool:\n        self.n += 1\n        return True\n"
    assert seen(text) == []


def test_the_rule_sees_what_others_do() -> None:
    text = "class A:\n    def is_full(self) -> bool:\n        return self.part.settle() > 1\n"
    assert seen(text, {"settle"}) == [(2, "is_full")]
    other = "class B:\n    def settle(self):\n        {}\nclass C:\n    def settle(self):\n        {}\n"
    acts = all_functions(ast.walk(ast.parse(other.format("self.n += 1", "self.n = 1"))))
    assert acting_names(acts) == {"settle"}
    may_not = all_functions(ast.walk(ast.parse(other.format("self.n += 1", "return self.n"))))
    assert acting_names(may_not) == set()
