"""Settings of where messages are kept: in this process, on bookies of this machine, or on a cluster's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.server.monitoring_settings import MonitoringSettings

DIGESTS: Final = ("CRC32C", "CRC32", "HMAC", "DUMMY")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(MonitoringSettings):
    """The part of the settings that is about where messages are kept."""

    bookies: int = 0
    """Bookies that are started beside this process, on this machine; 0: messages are kept in this process.
    A data folder stays with what it began with."""
    metadata_url: str = ""
    """Metadata service of a cluster of bookies, ours or Apache's, which keeps the messages and everything
    else: zk://host:port,host:port/ledgers or etcd://host:port/ledgers; empty: there is no such cluster."""
    metadata_session_timeout_seconds: int = 10
    """Without contact for so long, this process has lost its place in that cluster. At least 1."""
    ledger_ensemble_size: int = 2
    """Bookies that share the entries of a ledger."""
    ledger_write_quorum: int = 2
    """Copies of each entry; at most `ledger_ensemble_size`."""
    ledger_ack_quorum: int = 2
    """Copies that must be durable before an entry is acknowledged; at most `ledger_write_quorum`."""
    ledger_digest: str = DIGESTS[0]
    """How entries are checked: CRC32C, CRC32, HMAC or DUMMY (not at all)."""


def check_ledgers(settings: LedgerSettings) -> None:
    """Raises StartupError, which names the setting and the rule."""
    ensemble, writes, acks = (
        settings.ledger_ensemble_size,
        settings.ledger_write_quorum,
        settings.ledger_ack_quorum,
    )
    if not 1 <= acks <= writes <= ensemble:
        raise StartupError(
            f"ledger_ensemble_size {ensemble}, ledger_write_quorum {writes} and ledger_ack_quorum {acks} must"
            " be in descending order and at least 1"
        )
    if settings.ledger_digest not in DIGESTS:
        known = ", ".join(DIGESTS)
        raise StartupError(f"ledger_digest is {settings.ledger_digest!r}; it must be one of {known}")
    if settings.metadata_session_timeout_seconds < 1:
        raise StartupError("metadata_session_timeout_seconds must be at least 1")
    if settings.bookies and settings.metadata_url:
        raise StartupError("bookies are started for no cluster that has some; drop bookies or metadata_url")
    if settings.bookies and settings.bookies < ensemble:
        raise StartupError(
            f"bookies is {settings.bookies}, and a ledger needs {ensemble}: start more, or set a smaller"
            " ledger_ensemble_size"
        )
    if settings.metadata_url and not settings.metadata_url.startswith(("zk", "etcd")):
        raise StartupError(
            f"metadata_url is {settings.metadata_url!r}; it must be as zk://host:port/ledgers or"
            " etcd://host:port/ledgers"
        )
