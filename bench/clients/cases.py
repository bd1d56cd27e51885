"""What is asked of every broker with the official clients: one case is one row of the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load of one client."""

    name: str
    client: str = "go"
    mode: str = "paced"
    """paced: an open loop of `rate_per_s`; flood: as fast as acknowledged; sync: one outstanding message of
    each connection."""
    rate_per_s: int = 1000
    payload_bytes: int = 1024
    batching: bool = False
    pending: int = 1000
    connections: int = 1
    topics: int = 1
    consume: bool = False
    """Consumers too, which acknowledge each message by itself."""

    def options(self) -> list[str]:
        """As the client programs take them."""
        out = ["--mode", self.mode, "--rate", str(self.rate_per_s)]
        out += ["--payload-bytes", str(self.payload_bytes), "--pending", str(self.pending)]
        out += ["--batching"] * self.batching
        if self.client == "go":
            out += ["--connections", str(self.connections), "--topics", str(self.topics)]
            out += ["--consume"] * self.consume
        return out


def _paced(client: str) -> list[Case]:
    return [
        Case(
            name=f"{client}-{rate}{'-batched' if batching else ''}",
            client=client,
            rate_per_s=rate,
            batching=batching,
        )
        for batching in (False, True)
        for rate in (100, 1_000, 5_000, 20_000)
    ]


def _floods(client: str) -> list[Case]:
    return [
        Case(name=f"{client}-flood-100b", client=client, mode="flood", payload_bytes=100),
        Case(name=f"{client}-flood-1k", client=client, mode="flood"),
        Case(name=f"{client}-flood-1k-batched", client=client, mode="flood", batching=True, pending=5_000),
    ]


CASES: Final[list[Case]] = [
    *_paced("go"),
    *_floods("go"),
    *(
        Case(name=f"go-5000-connections-{count}", rate_per_s=5_000, connections=count, pending=50)
        for count in (10, 1_000, 5_000)
    ),
    *(
        Case(name=f"go-sync-connections-{count}", mode="sync", connections=count, pending=1)
        for count in (1, 10, 1_000)
    ),
    Case(name="go-5000-topics-100", rate_per_s=5_000, connections=100, topics=100, pending=50),
    *(Case(name=f"go-{rate}-consumed", rate_per_s=rate, consume=True) for rate in (1_000, 5_000, 10_000)),
    *_paced("java")[1:4],
    *_floods("java")[1:],
    *_paced("python")[1:4],
    *_floods("python")[1:],
]


def chosen(patterns: Iterable[str]) -> list[Case]:
    """The cases whose names match one of these; `*` stands for anything. Raises ValueError for none."""
    wanted = list(patterns)
    found = [case for case in CASES if any(fnmatchcase(case.name, pattern) for pattern in wanted)]
    if not found:
        raise ValueError(
            f"no case is named {' or '.join(wanted)}; there are {', '.join(c.name for c in CASES)}"
        )
    return found
