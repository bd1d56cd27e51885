"""What the decisions about bundles want done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from magnetar.broker.ownership.bundle import Bundle


@dataclass(frozen=True, slots=True)
class Claim:
    """Create the record, ephemeral, unless one is there; then read the ranges and the other records."""

    bundle: Bundle
    session: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the loaded topics of the bundle, then call `closed`."""

    bundle: Bundle
    lost: bool
    """Clients are sent away in this turn: nothing more is acknowledged."""
    to: str
    """Broker that takes the bundle, which clients are told; "": they look it up."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record if it is this session's, then call `deleted`."""

    bundle: Bundle
    session: int


Effect: TypeAlias = Claim | Close | Delete
