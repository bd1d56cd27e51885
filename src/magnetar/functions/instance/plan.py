"""What an instance is told: everything it needs to run one function, as values and as JSON (pure).

It goes to the worker process over an inherited socket, never as arguments: it holds a token and secrets.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

AT_MOST_ONCE: Final = "ATMOST_ONCE"
AT_LEAST_ONCE: Final = "ATLEAST_ONCE"
EFFECTIVELY_ONCE: Final = "EFFECTIVELY_ONCE"
MANUAL: Final = "MANUAL"
"""Guarantees, by Pulsar's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlan:
    """One topic that is read, or a pattern of topics."""

    topic: str
    """Name of the topic; of a pattern a regular expression for full names."""
    is_pattern: bool = False
    serde: str = ""
    """Class of the SerDe; empty: by the function's annotation, else Pulsar's guess."""
    schema_type: str = ""
    """string, json, bytes, or empty."""
    queue_messages: int = 1000
    """Most messages that the broker sends ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """How messages are collected before the function gets them."""

    length_count: int = 0
    """Messages of a window; 0: it is one of time."""
    length_ms: int = 0
    """Milliseconds of a window; 0: it is one of messages."""
    slide_count: int = 0
    """Messages between the ends of two windows; 0: as many as it has."""
    slide_ms: int = 0
    """Milliseconds between the ends of two windows; 0: its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlan:
    """One instance of one function."""

    tenant: str = "public"
    namespace: str = "default"
    name: str
    instance: int = 0
    """Number of the instance, from 0."""
    parallelism: int = 1
    version: int = 0
    class_name: str
    package: str
    """Path of the user's code."""
    inputs: tuple[InputPlan, ...]
    output: str = ""
    """Topic of the results; empty: results are dropped."""
    output_serde: str = ""
    guarantee: str = AT_LEAST_ONCE
    ordered: bool = False
    """Whether messages of a partition are processed in their order, one failure before the next message."""
    by_key: bool = False
    """Whether messages with the same key are processed in their order, by one instance."""
    auto_ack: bool = True
    subscription: str
    subscription_type: str
    """Shared, Key_Shared or Failover."""
    earliest: bool = False
    """Where a new subscription begins: with the first message, or with the next one."""
    retries_max: int | None = None
    """Calls after the first one for a message that fails; None: without end."""
    dead_letter_topic: str = ""
    log_topic: str = ""
    forward_properties: bool = True
    """Whether results have the properties of their message."""
    window: WindowPlan | None = None
    retry_ms: int = 100
    """Milliseconds before the first repeated call; the pauses double up to a minute."""
    user_config: Mapping[str, object] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    service_url: str
    admin_url: str = ""
    token: str = field(default="", repr=False)
    state_file: str = ""
    """Path of the function's state; empty: it has none."""
    work_folder: str = ""
    """Folder where packages are unpacked; empty: a temporary one."""
    confines: bool = False
    """Whether the code is kept from files of the machine, as far as the system can."""
    must_confine: bool = False
    """Whether it does not run where the system cannot."""
    starts_processes: bool = False
    """Whether confined code may start processes."""
    connect_ports: tuple[int, ...] = ()
    """Ports to which confined code may connect over TCP, besides the broker's; empty: all."""
    memory_bytes_max: int = 0
    """Most bytes of memory; 0: no limit."""
    file_bytes_max: int = 0
    """Most bytes of a file that the code writes; 0: no limit."""

    @property
    def full_name(self) -> str:
        """`tenant/namespace/name`."""
        return f"{self.tenant}/{self.namespace}/{self.name}"

    @property
    def code_folder(self) -> str:
        """Folder of this instance alone, where its package is unpacked and its code may write."""
        name = f"{self.name}-{self.version}-{self.instance}"
        return str(Path(self.work_folder or tempfile.gettempdir()) / self.tenant / self.namespace / name)

    @property
    def once(self) -> bool:
        """Whether each message counts once in outputs and state."""
        return self.guarantee == EFFECTIVELY_ONCE

    @property
    def in_order(self) -> bool:
        """Whether a message that fails holds up those behind it."""
        return self.ordered or self.by_key or self.once

    @property
    def takes_all_parts(self) -> bool:
        """Whether all instances read all partitions; else each partition has one instance."""
        return not (self.ordered or self.once)

    @property
    def dead_letters(self) -> str:
        """Where messages go whose calls are used up; by default Pulsar's name, "" without retries."""
        if self.dead_letter_topic or self.retries_max is None:
            return self.dead_letter_topic
        first = self.inputs[0].topic
        return "" if self.inputs[0].is_pattern else f"{first}-{self.subscription.replace('/', '-')}-DLQ"

    def encode(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, line: str | bytes) -> InstancePlan:
        """The inverse of `encode`."""
        fields = json.loads(line)
        fields["inputs"] = tuple(InputPlan(**each) for each in fields["inputs"])
        fields["connect_ports"] = tuple(fields["connect_ports"])
        if fields["window"] is not None:
            fields["window"] = WindowPlan(**fields["window"])
        return cls(**fields)
