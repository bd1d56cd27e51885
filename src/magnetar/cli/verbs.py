"""Makes commands that are one call of the admin API, each from a row of a table.

A row names the method, the path with its arguments, parameters from options, and an example. A command that
changes something has `--dry-run`. One that cannot be undone asks first, unless `--yes` is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final

import click

from magnetar.adminclient import paths
from magnetar.cli.caller import Caller, calls, confirm
from magnetar.cli.wildcards import topics_named

_PLACES: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "tenant": ("tenant", paths.tenant),
    "tenant_name": ("tenant", paths.part),
    "cluster": ("cluster", paths.cluster),
    "namespace": ("namespace", paths.namespace),
    "topic": ("topic", paths.topic),
    "schema": ("topic", paths.schema),
    "lookup": ("topic", paths.lookup),
    "function": ("function", paths.function),
    "functions": ("namespace", paths.functions),
}
"""Placeholders that are filled by an argument of another name: the argument's name, and the function that
makes a path of it."""

Given = Mapping[str, Any]
"""Arguments and options of a command by their names, as click converted them."""

_DRIER: Final = click.Option(["--dry-run"], is_flag=True, help="Print the call and do not make it.")
_SURE: Final = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask for confirmation.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One command of a noun, as one call of the admin API."""

    name: str
    help: str
    example: str
    """The command with arguments, without the word `magnetar`."""
    path: str
    """The path with placeholders. A name of `_PLACES` becomes a path, any other name one part of the path."""
    method: str = "GET"
    options: Sequence[click.Option] = ()
    query: Mapping[str, str] | None = None
    """Parameters of the query, each with the name of its option. Options that are not given add no parameter.
    """
    body: Callable[[Given], object] | None = None
    """Makes the body from the arguments and options; None: the call has no body."""
    done: str = ""
    """Text to print after a call that has no answer, with arguments in braces."""
    question: str = ""
    """Question to ask before the call, with arguments in braces; empty: the command does not ask."""
    rows: Callable[[Any], object] | None = None
    """Makes the document to print from the answer; None: the answer is printed unchanged."""
    columns: Sequence[str] = ()

    def arguments(self) -> list[str]:
        """Names of the arguments, in the order of the path."""
        found = [name for _, name, _, _ in Formatter().parse(self.path) if name]
        return [_PLACES[name][0] if name in _PLACES else name for name in found]


def group(
    name: str, help_text: str, verbs: Iterable[Verb], more: Iterable[click.Command] = ()
) -> click.Group:
    """A group of commands: `verbs` as rows, then `more`."""
    made = click.Group(name, help=help_text)
    for verb in verbs:
        made.add_command(command_of(verb))
    for command in more:
        made.add_command(command)
    return made


def command_of(verb: Verb) -> click.Command:
    """The command of a row."""

    @calls
    def run(caller: Caller, /, **given: object) -> None:
        _run(verb, caller, given)

    params: list[click.Parameter] = [click.Argument([name]) for name in verb.arguments()]
    params += verb.options
    if verb.method != "GET":
        params.append(_DRIER)
    if verb.question:
        params.append(_SURE)
    shared = list(getattr(run, "__click_params__", []))
    return click.Command(
        verb.name,
        callback=run,
        params=params + shared[::-1],
        help=verb.help,
        epilog=f"Example: magnetar {verb.example}",
    )


def path_of(template: str, given: Given) -> str:
    """The path with the arguments in place of the placeholders. Raises InvalidNameError."""
    made = ""
    for text, name, _, _ in Formatter().parse(template):
        made += text
        if name in _PLACES:
            argument, make = _PLACES[name]
            made += make(given[argument])
        elif name:
            made += paths.part(str(given[name]))
    return made if made.startswith("/") else f"{paths.ROOT}/{made}"


def _run(verb: Verb, caller: Caller, given: Given) -> None:
    # What is to be created is taken by its name.
    names = topics_named(caller, given["topic"]) if "topic" in given and verb.name != "create" else []
    if len(names) < 2:
        _run_one(verb, caller, {**given, "topic": names[0]} if names else given)
        return
    if verb.question and not given.get("dry_run"):
        said = verb.question.format(**{**given, "topic": f"{len(names)} topics"})
        confirm(f"{', '.join(names)}\n{said}", yes=given["yes"])
    if verb.method == "GET":
        caller.show({name: _called(verb, caller, {**given, "topic": name}) for name in names})
        return
    for name in names:
        # It stops at the first that fails; what was done before was said.
        _run_one(verb, caller, {**given, "topic": name, "yes": True})


def _called(verb: Verb, caller: Caller, given: Given) -> object:
    with caller.admin() as admin:
        answer = admin.call(verb.method, path_of(verb.path, given), query=_query(verb, given))
    return answer if verb.rows is None else verb.rows(answer)


def _query(verb: Verb, given: Given) -> dict[str, object]:
    return {
        key: given[option] for key, option in (verb.query or {}).items() if given[option] not in (None, False)
    }


def _run_one(verb: Verb, caller: Caller, given: Given) -> None:
    path = path_of(verb.path, given)
    query = _query(verb, given)
    body = None if verb.body is None else verb.body(given)
    if given.get("dry_run"):
        words = "&".join(f"{key}={value}" for key, value in query.items())
        click.echo(f"{verb.method} {path}{'?' + words if words else ''}")
        if body is not None:
            click.echo(json.dumps(body))
        return
    if verb.question:
        confirm(verb.question.format(**given), yes=given["yes"])
    with caller.admin() as admin:
        answer = admin.call(verb.method, path, body, query=query)
    if answer is None and verb.done:
        if caller.output == "table":
            click.echo(verb.done.format(**given))
        return
    caller.show(answer if verb.rows is None else verb.rows(answer), columns=verb.columns)
