"""What the supervisor gives to the storage process, and the settings that go with one (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.server.processes.seat import decode_overrides, encode_overrides
from magnetar.server.settings.config import StandaloneConfig

READY: Final = b"ready\n"
"""The line with which the storage process tells that it serves."""


@dataclass(frozen=True, slots=True)
class StorageSeat:
    """What the supervisor gives to the process, as JSON in one line."""

    folder: str
    """Where the processes meet."""
    config: str = ""
    """File of settings; "": none."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Settings of the command line."""
    password: str = field(default="", repr=False)
    """What the bookies ask for, from every storage process of this supervisor: brokers outlive it. "":
    nothing."""

    def encode(self) -> str:
        """See `decode`."""
        document = {
            "folder": self.folder,
            "config": self.config,
            "overrides": encode_overrides(self.overrides),
            "password": self.password,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> StorageSeat:
        """From `encode`."""
        document = json.loads(text)
        overrides = decode_overrides(document["overrides"])
        return cls(document["folder"], document["config"], overrides, document["password"])


def with_storage(config: StandaloneConfig) -> StandaloneConfig:
    """The settings of several processes of a standalone server: one bookie with one copy, unless bookies
    are set.

    Raises StartupError for what several processes do not support.
    """
    if config.ephemeral:
        raise StartupError(
            "several processes share what is in the data folder: leave --ephemeral or --processes out"
        )
    if config.metadata_url:
        raise StartupError(
            "with a metadata service, several processes are brokers of its cluster: start"
            " magnetar broker --processes"
        )
    if config.bookies:
        return config
    return replace(config, bookies=1, ledger_ensemble_size=1, ledger_write_quorum=1, ledger_ack_quorum=1)
