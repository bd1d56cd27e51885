"""The metrics of several processes as one scrape (pure).

Each process gives its families with a label `process`; a family that several of them have stands once, with
the samples of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from magnetar.base.errors import StorageError
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, FamilyText, labels


def merged(parts: Iterable[Iterable[FamilyText]]) -> str:
    """The text of a scrape; families come in the order in which they were found first."""
    heads: dict[str, str] = {}
    samples: dict[str, list[str]] = {}
    for part in parts:
        for name, head, lines in part:
            heads.setdefault(name, head)
            samples.setdefault(name, []).append(lines)
    return "".join(head + "".join(samples[name]) for name, head in heads.items())


def ups(answered: Mapping[str, bool]) -> list[FamilyText]:
    """The family that says which processes have answered a scrape, by the value of their label."""
    out, name = Exposition(), "magnetar_process_up"
    for process, is_up in answered.items():
        out.gauge(name, text_of(name), int(is_up), labels(("process", process)))
    return list(out.families())


def as_answer(families: Iterable[FamilyText]) -> list[list[str]]:
    """Families as JSON has them."""
    return [list(family) for family in families]


def from_answer(answer: object) -> list[FamilyText]:
    """From `as_answer`. Raises StorageError for what is none."""
    if not isinstance(answer, list):
        raise StorageError("another process sent no metrics")
    return [_family(each) for each in answer]


def _family(each: object) -> FamilyText:
    if isinstance(each, list) and len(each) == len(FamilyText._fields):
        name, head, samples = each
        if isinstance(name, str) and isinstance(head, str) and isinstance(samples, str):
            return FamilyText(name, head, samples)
    raise StorageError("another process sent no metrics")
