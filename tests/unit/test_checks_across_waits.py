"""No `await` between a check of an attribute and what depends on it, unless a comment says why that is so.

Between two `await`s no other code runs. So a coroutine that looks at an attribute of its object, waits, and
then uses the attribute acts on something that others may have changed. It has to look again after the wait,
or to hold the thing, or to say in a comment between the two which code can act and why that is harmless.
`checks_across_waits.txt` lists those that were gone through and says it there.

What the rule sees: in one coroutine, a condition of `if`, `while` or `x if y else z` that reads `self.a` or
`other.a` (of a parameter, a local name, or what either holds, as `self.other.a`), or a name that was made of
it; an `await` behind it in the text; and after that a use of the same attribute outside a condition.
Only attributes that change after the object was made are of concern: those that its class changes, or other
code of any object. Annotations tell the class of another object (`support/owner_types.py`); where they
do not, an attribute whose name some module changes of something counts. A property or a predicate
(`support/asking.py`) of `self` stands for the attributes it reads, one of others for itself.

A second rule sees a predicate or property that a condition asks before a wait, when a method of the same
object acts after the wait, as in `if topic.is_idle: await told(); topic.close()`. It sees a predicate as well
that a name is made of, where a condition reads the name: the answer is as old as the name. A method of `self`
acts when it changes what the predicate reads, one of others when it changes something in the class of the
object, or in some class where that is unknown. The rule is content with another
condition that asks the same after the wait, with a method that itself looks at what the predicate reads, and
with a call that is not reached from the wait. Its rows are `module:coroutine:object.predicate->method`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support import asked_before, owner_types
from support.owner_types import Owners
from support.sources import below, modules
from support.waits import Found, changes_around, coroutines, found_in, is_explained, unexplained

REVIEWED: Final = Path(__file__).parent / "checks_across_waits.txt"


def reviewed() -> dict[str, str]:
    """Places that were gone through, and why they are harmless."""
    text = REVIEWED.read_text(encoding="utf-8")
    rows = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def acted_unexplained(path: Path) -> Iterator[str]:
    """What the second rule finds in a module, and no comment explains."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for place, found in asked_before.acted(path):
        if not is_explained(lines, Found(found.asked, found.checked, found.used)):
            yield place


def test_nobody_acts_on_what_was_checked_before_a_wait() -> None:
    places = {place for path in modules() for place in (*unexplained(path), *acted_unexplained(path))}
    known = reviewed()
    assert sorted(places - known.keys()) == [], (
        "look again after the wait, or say in a comment who else can act; see the head of this test"
    )
    assert sorted(known.keys() - places) == [], "these are gone: take them out of checks_across_waits.txt"
    assert all(len(reason) > 20 for reason in known.values()), "say who else can act, and why it is harmless"


def of(body: str) -> list[str]:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = (
        f"class K:\n    async def f(self, other):\n{lines}\n    def g(self):\n        self.a = 1\n"
        "    @property\n    def p(self):\n        return self.q\n"
        "    @property\n    def q(self):\n        return self.a\n"
        "    def is_a(self) -> bool:\n        return self.a > 1\n"
    )
    (kind,) = ast.parse(text).body
    assert isinstance(kind, ast.ClassDef)
    function = kind.body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    source = text.splitlines()
    return [
        found.attribute
        for found in found_in(function, changes_around(kind, frozenset({"z"}), frozenset({"y_of"})))
        if not is_explained(source, found)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "if not self.a:\n    self.a = await made()",
        "if self.a:\n    await done()\n    self.a.close()",
        "b = self.a.get(1)\nif b is None:\n    await done()\n    self.a[1] = 2",
        "while self.a:\n    async with lock:\n        self.a.pop()",
        "b = 1 if self.a else 2\nself.a = b + await made()",
    ],
)
def test_the_rule_sees(body: str) -> None:
    assert of(body) == ["a"]


@pytest.mark.parametrize(
    ("body", "attribute"),
    [
        ("if other.z:\n    await done()\n    other.z = 1", "other.z"),
        ("one = other.get()\nif one.z is None:\n    one.z = await made()", "one.z"),
        ("while not self.b.z:\n    await done()\n    self.b.z.close()", "self.b.z"),
        ("z = other.b.z\nif z:\n    await done()\n    use(other.b.z)", "other.b.z"),
    ],
)
def test_the_rule_sees_other_objects(body: str, attribute: str) -> None:
    assert of(body) == [attribute]


@pytest.mark.parametrize(
    ("body", "attribute"),
    [
        ("if self.p:\n    await done()\n    self.a.close()", "a"),
        ("if self.p:\n    await done()\n    self.p.close()", "p"),
        ("if not self.is_a():\n    self.a = await made()", "a"),
        ("if other.y_of:\n    await done()\n    use(other.y_of)", "other.y_of"),
    ],
)
def test_the_rule_sees_what_properties_and_predicates_read(body: str, attribute: str) -> None:
    assert of(body) == [attribute]


def test_the_rule_sees_all_coroutines() -> None:
    text = "class K:\n    def g(self):\n        async def f(): ...\n        self.a = 1\nasync def h(): ...\n"
    found = coroutines(list(ast.walk(ast.parse(text))))
    assert [(each.name, kind and kind.name) for each, kind in found] == [("h", None), ("f", "K")]


@pytest.mark.parametrize(
    "body",
    [
        "if self.a:\n    self.a.close()\n    await done()",  # before the wait
        "if self.a:\n    await done()\n    if self.a:\n        self.a.close()",  # looked again
        "if self.a:\n    await self.a.done()",  # read before the wait begins
        "if self.a:\n    # Nobody else sets it.\n    await done()\n    self.a.close()",  # explained
        "if self.b:\n    await done()\n    self.b.close()",  # no method changes b
        "await done()\nif self.a:\n    self.a.close()",  # checked after the wait
        "if other.y:\n    await done()\n    other.y.close()",  # no method changes y
        "if other.z():\n    await done()\n    other.z()",  # a method
        "if any(lambda x: x.z):\n    await done()\n    x.z = 1",  # another x
    ],
)
def test_the_rule_does_not_see(body: str) -> None:
    assert of(body) == []


def acted_on(body: str) -> list[tuple[str, str]]:
    """What the second rule finds in a coroutine of a class `K`, beside a class `Other`."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = (
        f"class K:\n    async def f(self, other):\n{lines}\n"
        "    def is_open(self) -> bool:\n        return self.a > 1\n"
        "    def close(self):\n        self.end()\n    def end(self):\n        self.a = 1\n"
        "    def careful(self):\n        if self.a:\n            self.a = 1\n"
        "    def note(self):\n        self.b = 1\n"
        "class Other:\n    @property\n    def idle(self):\n        return self.z\n"
        "    def shut(self):\n        self.z = 1\n    def shown(self):\n        return self.z\n"
        "    def shut_idle(self):\n        assert self.idle\n        self.z = 1\n"
    )
    tree = ast.parse(text)
    kind = tree.body[0]
    assert isinstance(kind, ast.ClassDef)
    function = kind.body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    known = asked_before.known_of([below(tree)], frozenset({"a", "z"}))
    return [(found.asked, found.method) for found in asked_before.found_in(function, kind, known)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if self.is_open():\n    await done()\n    self.close()", ("is_open", "close")),
        ("if not self.is_open():\n    return\nawait done()\nself.end()", ("is_open", "end")),
        ("if other.idle:\n    await done()\n    other.shut()", ("other.idle", "shut")),
        ("while other.b.idle:\n    await done()\n    other.b.shut()", ("other.b.idle", "shut")),
        ("if other.idle:\n    async with lock:\n        other.shut()", ("other.idle", "shut")),
        ("await done()\nif other.idle:\n    await done()\nother.shut()", ("other.idle", "shut")),
        ("free = self.is_open()\nawait done()\nif free:\n    self.close()", ("is_open", "close")),
        ("free = not self.is_open()\nif free:\n    await done()\n    self.end()", ("is_open", "end")),
        ("while free := self.is_open():\n    await done()\n    self.end()", ("is_open", "end")),
    ],
)
def test_the_second_rule_sees(body: str, found: tuple[str, str]) -> None:
    assert acted_on(body) == [found]


@pytest.mark.parametrize(
    "body",
    [
        "if self.is_open():\n    self.close()\n    await done()",  # before the wait
        "if self.is_open():\n    await done()\n    if self.is_open():\n        self.close()",  # asked again
        "if self.is_open():\n    await done()\n    self.careful()",  # the method looks itself
        "if self.is_open():\n    await done()\n    self.note()",  # changes something else
        "if other.idle:\n    await done()\n    other.shown()",  # changes nothing
        "if other.idle:\n    await done()\n    other.shut_idle()",  # looks itself
        "if other.idle:\n    await done()\n    self.b.shut()",  # another object
        "if other.idle:\n    await done()\n    return\nother.shut()",  # the wait does not lead there
        "if other.idle:\n    await done()\nelse:\n    other.shut()",  # nor to the other branch
        "while not other.idle:\n    await done()\nother.shut()",  # the loop asks again
        "free = self.is_open()\nif free:\n    self.close()\nawait done()",  # before the wait
        "await done()\nfree = self.is_open()\nif free:\n    self.close()",  # asked after the wait
        "free = self.is_open()\nawait done()\nif free and self.is_open():\n    self.close()",  # asked again
    ],
)
def test_the_second_rule_does_not_see(body: str) -> None:
    assert acted_on(body) == []


TYPED = """
class Base:
    def __init__(self):
        self.a = 0
    def raise_it(self):
        self.a += 1
class Box(Base):
    def __init__(self, lid: "Lid"):
        self.lid = lid
        self.spare = Lid()
        self.b = 0
    @property
    def top(self) -> "Lid | None":
        return self.lid
    async def opened(self) -> "Lid":
        return self.lid
class Lid:
    def turn(self):
        self.c = 1
class Shape(Protocol):
    d: int
async def f(box: Box, shape: Shape, other):
    lid = await box.opened()
    found = box.top
    either = Lid()
    either = other.get()
    for each in other:
        pass
"""


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("box", {"Box", "Base"}), ("box.lid", {"Lid"}), ("box.spare", {"Lid"}), ("lid", {"Lid"}),
        ("found", {"Lid"}), ("shape", None), ("other", None), ("either", None), ("each", None),
        ("box.b", None),
    ],
)  # fmt: skip
def test_annotations_tell_classes(path: str, names: set[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse(TYPED)
    kinds = {node.name: [node] for node in tree.body if isinstance(node, ast.ClassDef)}
    for cached in (owner_types._heirs, owner_types.family, owner_types.parts):
        monkeypatch.setattr(owner_types, cached.__name__, cached.__wrapped__)
    monkeypatch.setattr(owner_types, "classes", lambda: kinds)
    function = tree.body[-1]
    assert isinstance(function, ast.AsyncFunctionDef)
    found = Owners(function, None).classes_of(path)
    assert (found if found is None else {kind.name for kind in found}) == names
