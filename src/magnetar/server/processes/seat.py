"""What the supervisor gives to each broker process, as JSON in one line, and what comes back (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from magnetar.server.banner import Endpoints

STORAGE_CALLS: Final = "storage.calls"
"""In the folder where the processes meet: where the storage process answers the calls of the others."""

FUNCTIONS_NUMBER: Final = 1
"""The process that has the functions of a standalone server. One of them: two processes of an instance must
not run at the same time."""
STOP = b"stop\n"
"""From the supervisor: all processes are being stopped. The end of the connection says the same."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one kind of listener each; 0: there is none, or any free one."""

    broker: int = 0
    http: int = 0
    broker_tls: int = 0
    https: int = 0


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one process among the processes of its machine."""

    number: int
    """From 1 on; it stays when the process is replaced."""
    own: Mapping[int, Ports]
    """Own ports of each process, by its number."""
    shared: Ports
    """Ports that all of them share."""
    descriptors: Ports
    """The listening sockets of the shared ports, as descriptors that the process inherits."""
    control: int
    """Descriptor of the connection to the supervisor."""
    folder: str
    """Where the processes receive sockets of each other."""
    config: str = ""
    """File of settings; "": none."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Settings of the command line."""
    storage: bool = False
    """Whether a storage process has the metadata and the messages: then `folder` leads to it."""

    @property
    def ports(self) -> Ports:
        """Own ports of this process."""
        return self.own[self.number]

    def place(self, number: int) -> Path:
        """Where a process receives sockets."""
        return Path(self.folder) / f"{number}.sock"

    def calls(self, number: int) -> Path:
        """Where a process answers the calls of the others."""
        return Path(self.folder) / f"{number}.calls"

    @property
    def has_functions(self) -> bool:
        """Whether functions run beside this process. Brokers of a cluster have none."""
        return self.storage and self.number == FUNCTIONS_NUMBER

    @property
    def storage_calls(self) -> Path | None:
        """Where the storage process answers; None: there is none."""
        return Path(self.folder) / STORAGE_CALLS if self.storage else None

    def encode(self) -> str:
        """See `decode`."""
        document = asdict(self)
        document["overrides"] = encode_overrides(self.overrides)
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Seat:
        """From `encode`."""
        document = json.loads(text)
        document["own"] = {int(number): Ports(**ports) for number, ports in document["own"].items()}
        document["overrides"] = decode_overrides(document["overrides"])
        document["shared"] = Ports(**document["shared"])
        document["descriptors"] = Ports(**document["descriptors"])
        return cls(**document)


def encode_overrides(overrides: Mapping[str, object]) -> dict[str, object]:
    """Settings of the command line as JSON has them."""
    return {
        name: {"path": str(value)} if isinstance(value, Path) else value for name, value in overrides.items()
    }


def decode_overrides(document: Mapping[str, object]) -> dict[str, object]:
    """From `encode_overrides`."""
    return {
        name: Path(str(value["path"])) if isinstance(value, dict) else value
        for name, value in document.items()
    }


def encode_ready(endpoints: Endpoints) -> bytes:
    """The line with which a process tells that it serves clients."""
    return json.dumps(asdict(endpoints), separators=(",", ":")).encode() + b"\n"


def decode_ready(line: bytes) -> Endpoints:
    """See `encode_ready`. Raises ValueError."""
    return Endpoints(**json.loads(line))
