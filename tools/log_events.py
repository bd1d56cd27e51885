"""Every event that the log of a broker may name, read from the places that log."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from source_trees import parsed

from magnetar.observability.events import event_of

PACKAGE: Final = Path(__file__).resolve().parents[1] / "src" / "magnetar"
_LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_NAMES: Final = {"exception": "error", "log": "by what happened"}
_OTHERS: Final = {"spark", "demo", "client", "arrow", "history", "tables", "sql"}
"""Rooms of programs that have logs of their own."""


class Event(NamedTuple):
    """One thing that happens."""

    name: str
    level: str
    template: str
    """The message, as `%s` and the like are put into it."""


@cache
def events() -> list[Event]:
    """All, by name; one for each name and level."""
    found: dict[tuple[str, str], Event] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in _OTHERS:
            continue
        for event in _events_in(parsed(path)):
            found.setdefault((event.name, event.level), event)
    return sorted(found.values())


def _events_in(tree: ast.Module) -> Iterator[Event]:
    loggers = dict(_loggers(tree))
    if not loggers:
        return
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in _calls(function):
                if event := _event(call, loggers, function.name):
                    yield event


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """Those of a function, without those of functions in it."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _calls(node)


def _loggers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="getLogger"), args=[ast.Constant(value=str(logger))]),
            ):
                yield name, logger


def _event(call: ast.Call, loggers: dict[str, str], function: str) -> Event | None:
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=level) if name in loggers and level in _LEVELS:
            arguments = call.args[1:] if level == "log" else call.args
            if not arguments or not isinstance(arguments[0], ast.Constant):
                return None
            template = str(arguments[0].value)
            return Event(event_of(loggers[name], template, function), _NAMES.get(level, level), template)
    return None
