"""What holds for modules that may be compiled (`magnetar.twin.MODULES`), wherever their classes are used.

An interpreted subclass of a compiled class is a TypeError when the first object is made, and what is
assigned to a compiled class or module is a TypeError or has no effect. The sources alone show neither, so it
is found here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from magnetar import twin
from support.sources import imports, nodes, parsed

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "magnetar"
FOLDERS = ("src", "tests", "bench", "sim", "chaos", "tools")

_SETTERS = {"setattr", "delattr", "patch.object", "mock.patch.object"}
"""Calls that change their first argument, by the end of their name."""


@cache
def compiled() -> frozenset[str]:
    """Full names of all classes in compiled modules, and of the modules."""
    found = set(twin.MODULES)
    for module in twin.MODULES:
        tree = parsed(Path(twin.source_of(PACKAGE, module)))
        found |= {f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    return frozenset(found)


def concerns(path: Path, known: frozenset[str]) -> bool:
    """Whether a file names a compiled module, in an import or anywhere: others need not be parsed."""
    imported = names_of(imports(path)).values()
    if any(name in known or name.rpartition(".")[0] in known for name in imported):
        return True
    text = path.read_text(encoding="utf-8")
    return any(module in text for module in twin.MODULES)


def names_of(walked: Sequence[ast.AST]) -> dict[str, str]:
    """What each imported name stands for."""
    names: dict[str, str] = {}
    for node in walked:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def full_name(expression: ast.expr, names: dict[str, str]) -> str:
    """The full name of a class or module that an expression names; it begins with "?" when it names none."""
    head, dot, rest = dotted(expression).partition(".")
    return f"{names.get(head, head)}{dot}{rest}"


def dotted(expression: ast.expr) -> str:
    """A name and attributes as they are written; "?" stands for whatever else an attribute is of."""
    # A hundredth of what `ast.unparse` takes, and there are hundreds of thousands of these.
    attributes = []
    while isinstance(expression, ast.Attribute):
        attributes.append(expression.attr)
        expression = expression.value
    head = expression.id if isinstance(expression, ast.Name) else "?"
    return ".".join((head, *reversed(attributes)))


def wrongs(walked: Sequence[ast.AST], known: frozenset[str]) -> Iterator[str]:
    """Subclasses of compiled classes in a module that is not compiled, and changes to them."""
    names = names_of(walked)
    for node in walked:
        if type(node) not in _CONCERNED:
            continue
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if full_name(base, names) in known:
                    yield f"{node.lineno}: {node.name} inherits from {full_name(base, names)}"
        for changed in _changed(node):
            if full_name(changed, names) in known:
                yield f"{node.lineno}: changes {full_name(changed, names)}"


_CONCERNED = {ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Call}
"""Nodes that are a class, or that may change one."""


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """The objects of which a statement or call sets an attribute."""
    if isinstance(node, ast.Assign):
        yield from (target.value for target in node.targets if isinstance(target, ast.Attribute))
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.Delete):
        targets = node.targets if isinstance(node, ast.Delete) else [node.target]
        yield from (target.value for target in targets if isinstance(target, ast.Attribute))
    elif isinstance(node, ast.Call) and node.args:
        called = dotted(node.func)
        if not any(called == name or called.endswith(f".{name}") for name in _SETTERS):
            return
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and "." in first.value:
            # monkeypatch.setattr("module.Class.name", value)
            yield ast.parse(first.value.rpartition(".")[0], mode="eval").body
        else:
            yield first


def test_nothing_inherits_from_compiled_classes_or_changes_them() -> None:
    own = {Path(twin.source_of(PACKAGE, module)) for module in twin.MODULES}
    found = [
        f"{path.relative_to(REPOSITORY)}:{wrong}"
        for folder in FOLDERS
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if path not in own and concerns(path, compiled())
        for wrong in wrongs(nodes(path), compiled())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "from magnetar.wire.messages import MessageEncoder\nclass Own(MessageEncoder): ...",
        "from magnetar.wire.messages import MessageEncoder as M\nclass Own(object, M): ...",
        "from magnetar.wire import messages\nclass Own(messages.MessageEncoder): ...",
        "import magnetar.wire.messages as m\nclass Own(m.MessageEncoder): ...",
        "import magnetar.wire.messages\nclass Own(magnetar.wire.messages.MessageEncoder): ...",
        "from magnetar.wire.messages import MessageEncoder\nMessageEncoder.encode = None",
        "from magnetar.wire.messages import MessageEncoder\ndel MessageEncoder.encode",
        "from magnetar.wire.messages import MessageEncoder as M\nmonkeypatch.setattr(M, 'encode', None)",
        "from magnetar.wire import sends\nmonkeypatch.setattr(sends, 'LIMIT', 3)",
        "monkeypatch.setattr('magnetar.wire.messages.MessageEncoder.encode', None)",
        "from magnetar.wire import frames\nmock.patch.object(frames, 'varint')",
    ],
)
def test_what_is_found(source: str) -> None:
    assert len(list(wrongs(list(ast.walk(ast.parse(source))), compiled()))) == 1


def test_what_is_not_found() -> None:
    source = "from magnetar.wire.messages import MessageEncoder\nclass Own:\n    encoder = MessageEncoder(1)"
    assert list(wrongs(list(ast.walk(ast.parse(source))), compiled())) == []
