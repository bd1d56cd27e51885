"""Which faults happen when: made from a seed, written down, and read again for a replay. Pure.

A fault has a time from the begin of the run, a kind, one or two targets, a length and a strength, in seconds
and in the unit of its kind. `KINDS` says which targets a kind has; `MIXES`, which kinds a run draws from.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

BROKERS: Final = ("b1", "b2", "b3")
BOOKIES: Final = ("k1", "k2", "k3", "k4")
CLIENTS: Final = ("c1", "c2")
QUIET_S: Final = 5.0
"""Nothing happens at the begin, so that every topic has messages, nor in the last seconds of a run."""


@dataclass(frozen=True)
class Shape:
    """The members of a cluster, by their names."""

    metadata: tuple[str, ...] = ("m1",)
    """Servers of the metadata service."""
    brokers: tuple[str, ...] = BROKERS
    bookies: tuple[str, ...] = BOOKIES
    clients: tuple[str, ...] = CLIENTS

    @property
    def servers(self) -> tuple[str, ...]:
        """All but the clients."""
        return (*self.brokers, *self.bookies, *self.metadata)

    @property
    def all(self) -> tuple[str, ...]:
        """Every member."""
        return (*self.servers, *self.clients)


@dataclass(frozen=True)
class Fault:
    """One fault."""

    at_s: float
    """When it begins, from the begin of the run."""
    kind: str
    targets: tuple[str, ...]
    """Names of members. A cut has two; one way, what the first sends to the second is lost."""
    for_s: float
    """How long it lasts; a killed process is started again after it."""
    strength: float = 0.0
    """Percent of lost packets, kilobits a second, or seconds of a clock; 0 for kinds that have none."""

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.for_s

    def __str__(self) -> str:
        strong = f" {self.strength:g}" if self.strength else ""
        return f"{self.at_s:7.1f} s  {self.kind} {' '.join(self.targets)}{strong}, for {self.for_s:.1f} s"


@dataclass(frozen=True)
class Kind:
    """How faults of a kind are drawn."""

    groups: tuple[str, ...]
    """Fields of `Shape`, one of which the first target is drawn from."""
    other: tuple[str, ...] = ()
    """The same for the second target, if there is one."""
    shortest_s: float = 2.0
    longest_s: float = 12.0
    strengths: tuple[float, ...] = (0.0,)
    whole_group: bool = False
    """Whether all members of the group are targets."""


KINDS: Final = {
    "kill": Kind(("brokers", "bookies"), shortest_s=0.5, longest_s=8.0),
    "kill metadata": Kind(("metadata",), shortest_s=0.5, longest_s=8.0),
    "metadata away": Kind(("metadata",), longest_s=15.0, whole_group=True),
    "stop": Kind(("brokers",), shortest_s=0.5, longest_s=4.0),
    "pause": Kind(("brokers", "bookies"), shortest_s=1.0, longest_s=20.0),
    "pause metadata": Kind(("metadata",), shortest_s=1.0, longest_s=12.0),
    "cut": Kind(("brokers",), ("brokers", "bookies", "metadata", "clients")),
    "cut bookie": Kind(("bookies",), ("metadata",), longest_s=15.0),
    "one way": Kind(("brokers", "bookies"), ("brokers", "bookies", "metadata", "clients")),
    "isolate": Kind(("brokers", "bookies"), longest_s=15.0),
    "lossy": Kind(("brokers", "bookies", "clients"), strengths=(1.0, 10.0, 30.0)),
    "slow": Kind(("brokers", "bookies", "clients"), strengths=(200.0, 1000.0)),
    "clock": Kind(("brokers", "bookies"), strengths=(-600.0, -5.0, 5.0, 600.0)),
    "full disk": Kind(("bookies",), shortest_s=3.0, longest_s=15.0),
    "disk error": Kind(("bookies",), shortest_s=1.0, longest_s=8.0),
    "move": Kind(("brokers",), shortest_s=0.1, longest_s=0.1),
}
"""All kinds. `kill`, `pause`: SIGKILL, SIGSTOP. `stop`: SIGTERM. `move`: bundles of the target are
unloaded."""

MIXES: Final[dict[str, tuple[str, ...]]] = {
    "all": tuple(KINDS),
    "processes": ("kill", "stop", "pause", "kill metadata", "pause metadata"),
    "network": ("cut", "cut bookie", "one way", "isolate", "lossy", "slow"),
    "disks": ("full disk", "disk error", "kill"),
    "owners": ("kill", "pause", "isolate", "cut", "one way", "move", "metadata away", "clock"),
    "none": (),
}


STORIES: Final = ("rolling", "outage", "full")
"""Runs without chance: all brokers are restarted in turn, again and again; the metadata service is away for
nearly the whole run; the disk of one bookie is full for as long."""
_ROLL_S: Final = 15.0
_STOPPED_S: Final = 4.0
"""Between the request to end and the start, or longer when the broker needs longer."""


def draw(seed: int, mix: str, seconds: float, shape: Shape, *, every_s: float = 6.0) -> list[Fault]:
    """The faults of a run of `seconds`, one every `every_s` on average, by the time of their begin.

    A member has one fault at a time. Fewer than half of the bookies, and of the servers of the metadata
    service if there are several, are away at a time, or a run would mostly show that nothing can be written
    then.
    """
    chance = random.Random(f"{seed} {mix}")
    faults: list[Fault] = []
    at_s = QUIET_S + chance.uniform(0, every_s)
    while MIXES[mix] and at_s < seconds - QUIET_S:
        fault = _one(chance, chance.choice(MIXES[mix]), at_s, seconds, shape)
        if fault is not None and _is_possible(fault, faults, shape):
            faults.append(fault)
        at_s += chance.uniform(0.2, 1.8) * every_s
    return faults


def story(name: str, seconds: float, shape: Shape) -> list[Fault]:
    """The faults of one of `STORIES`, without chance, in a run of `seconds`."""
    whole_s = max(1.0, seconds - 3 * QUIET_S)
    if name == "rolling":
        rounds = [
            each
            for _ in range(max(1, int(whole_s // (len(shape.brokers) * _ROLL_S))))
            for each in shape.brokers
        ]
        return [
            Fault(QUIET_S + number * _ROLL_S, "stop", (each,), _STOPPED_S)
            for number, each in enumerate(rounds)
        ]
    if name == "outage":
        return [Fault(2 * QUIET_S, "metadata away", shape.metadata, whole_s)]
    assert name == "full", f"no story {name}"
    return [Fault(2 * QUIET_S, "full disk", (shape.bookies[0],), whole_s)]


def _one(chance: random.Random, name: str, at_s: float, seconds: float, shape: Shape) -> Fault | None:
    kind = KINDS[name]
    group: tuple[str, ...] = getattr(shape, chance.choice(kind.groups))
    targets = group if kind.whole_group else (chance.choice(group),)
    if kind.other:
        others = [each for each in getattr(shape, chance.choice(kind.other)) if each not in targets]
        if not others:
            return None
        targets += (chance.choice(others),)
        if name == "one way" and chance.random() < 0.5:
            targets = targets[::-1]
    for_s = min(chance.uniform(kind.shortest_s, kind.longest_s), seconds - at_s)
    return Fault(round(at_s, 2), name, targets, round(for_s, 2), chance.choice(kind.strengths))


def _is_possible(fault: Fault, before: Iterable[Fault], shape: Shape) -> bool:
    meanwhile = [each for each in before if each.end_s > fault.at_s]
    taken = {name for each in meanwhile for name in each.targets}
    if taken & set(fault.targets):
        return False
    if len(shape.metadata) > 1 and len(fault.targets) == len(shape.metadata) and taken & set(shape.metadata):
        return False
    return all(
        not set(fault.targets) & set(group)
        or 2 * len((taken | set(fault.targets)) & set(group)) <= len(group)
        for group in (shape.bookies,)
    )


def written(faults: list[Fault]) -> str:
    """The faults as JSON, one a line."""
    return "".join(json.dumps(asdict(each)) + "\n" for each in faults)


def read(text: str) -> list[Fault]:
    """What `written` made, or a person. Raises ValueError that names the line."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            fault = Fault(**{**fields, "targets": tuple(fields["targets"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"line {number} of the schedule is not a fault: {error}") from error
        if fault.kind not in KINDS:
            raise ValueError(
                f"line {number} of the schedule: no kind {fault.kind!r}; there are: {', '.join(KINDS)}"
            )
        faults.append(fault)
    return sorted(faults, key=lambda each: each.at_s)
