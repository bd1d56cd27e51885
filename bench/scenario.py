"""Scenario files: one question each, and the cases that answer it.

A scenario is a TOML file in bench/scenarios:

    question = "What does it cost …?"       # required, one sentence
    kind = "publish"                        # one of KINDS
    order = 10                              # place among the scenarios

    [[case]]                                # one row of the table
    name = "1 producer"
    payload_bytes = 100                     # parameters of the kind, see its class
    [case.target]                           # optional: metric = figure to reach
    messages_per_s = 150000
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("scenarios")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishLoad:
    """As fast as acknowledged, from one or more producers, each with its own connection."""

    payload_bytes: int
    messages_per_entry: int = 1
    producers: int = 1
    window_messages: int = 10_000
    """Messages of one producer that may wait for their receipts."""
    discard: bool = False
    """Measure the generator alone, against a server that stores nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad:
    """A fixed rate of messages from one producer."""

    rate_per_s: int
    payload_bytes: int = 1024
    messages_per_entry: int = 1
    end_to_end: bool = False
    """Measure delivery to one durable consumer too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchupLoad:
    """A backlog, read by one reader."""

    messages: int
    payload_bytes: int
    messages_per_entry: int
    queue_messages: int = 100_000
    """Permits that the reader gives at most."""
    discard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsLoad:
    """Many topics, each with a producer of its own on one connection, each publishing once a second."""

    topics: int
    payload_bytes: int = 100
    rate_per_s: int = 1
    """Messages of each topic a second; 0 only opens them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLoad:
    """exec until the first acknowledged message, then idle."""

    data: str = "empty"
    """What the broker finds: "empty", "existing" (closed properly) or "killed" (SIGKILL before)."""
    messages_before: int = 200_000
    """Messages of 1 KiB published before, unless the store is empty."""

    def __post_init__(self) -> None:
        if self.data not in ("empty", "existing", "killed"):
            raise ValueError(f'data is "{self.data}", allowed are empty, existing, killed')


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialLoad:
    """The official Python client, for truth."""

    payload_bytes: int
    batching: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLoad:
    """A measuring program of its own: `python -m MODULE …`, see bench/module_run.py."""

    module: str
    needs_broker: bool = True
    argument: str = ""
    """Argument of the program, before all options; empty: none."""


Load = PublishLoad | LatencyLoad | CatchupLoad | TopicsLoad | StartLoad | OfficialLoad | ModuleLoad

KINDS: Final[Mapping[str, type[Load]]] = {
    "publish": PublishLoad,
    "latency": LatencyLoad,
    "catchup": CatchupLoad,
    "topics": TopicsLoad,
    "start": StartLoad,
    "official": OfficialLoad,
    "module": ModuleLoad,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    load: Load
    target: Mapping[str, float] = field(default_factory=dict)
    """Figures to reach, by metric."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question."""

    name: str
    question: str
    kind: str
    order: int
    cases: tuple[Case, ...]


class BadScenarioError(ValueError):
    """A scenario file that cannot be used; the text names file and place."""


def parse(name: str, text: str) -> Scenario:
    """The scenario in a TOML text; raises BadScenarioError for what is missing, unknown or mistyped."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadScenarioError(f"{name}: {error}") from error
    unknown = content.keys() - {"question", "kind", "order", "case"}
    if unknown:
        raise BadScenarioError(f"{name}: unknown keys {sorted(unknown)}")
    question = content.get("question")
    if not isinstance(question, str) or not question.endswith("?"):
        raise BadScenarioError(f"{name}: question must be a sentence that ends with a question mark")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadScenarioError(f"{name}: kind is {kind!r}, allowed are {', '.join(KINDS)}")
    rows = content.get("case")
    if not isinstance(rows, list) or not rows:
        raise BadScenarioError(f"{name}: there is no [[case]]")
    cases = tuple(_case(f"{name}, case {i + 1}", KINDS[kind], row) for i, row in enumerate(rows))
    if len({case.name for case in cases}) < len(cases):
        raise BadScenarioError(f"{name}: two cases have one name")
    return Scenario(name, question, kind, int(content.get("order", 100)), cases)


def _case(place: str, load_type: type[Load], row: dict[str, Any]) -> Case:
    row = dict(row)
    name = row.pop("name", None)
    if not isinstance(name, str):
        raise BadScenarioError(f"{place}: it has no name")
    target = row.pop("target", {})
    allowed = {f.name: f for f in fields(load_type)}
    unknown = row.keys() - allowed.keys()
    if unknown:
        raise BadScenarioError(f"{place}: unknown keys {sorted(unknown)}; allowed are {sorted(allowed)}")
    missing = {key for key, f in allowed.items() if f.default is MISSING} - row.keys()
    if missing:
        raise BadScenarioError(f"{place}: missing keys {sorted(missing)}")
    for key, value in row.items():
        if type(value).__name__ != allowed[key].type:
            raise BadScenarioError(f"{place}: {key} must be of type {allowed[key].type}")
    try:
        return Case(name, load_type(**row), {key: float(value) for key, value in target.items()})
    except ValueError as error:
        raise BadScenarioError(f"{place}: {error}") from error


def load_all(folder: Path = FOLDER) -> list[Scenario]:
    """All scenarios of a folder in their order."""
    found = [parse(path.stem, path.read_text()) for path in sorted(folder.glob("*.toml"))]
    return sorted(found, key=lambda scenario: (scenario.order, scenario.name))


def choose(scenarios: Iterable[Scenario], names: Iterable[str]) -> list[Scenario]:
    """The scenarios of these names, in the order of the names; all when `names` is empty.

    Raises BadScenarioError for a name that does not exist.
    """
    by_name = {scenario.name: scenario for scenario in scenarios}
    chosen = list(names)
    unknown = [name for name in chosen if name not in by_name]
    if unknown:
        raise BadScenarioError(f"no scenario {', '.join(unknown)}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in chosen] if chosen else list(by_name.values())
