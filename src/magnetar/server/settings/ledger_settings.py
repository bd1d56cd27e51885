"""Settings of where messages are kept: in this process, on bookies of this machine, or on a cluster's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.auth.secrets import SecretSource
from magnetar.base.errors import StartupError
from magnetar.server.settings.monitoring_settings import MonitoringSettings

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
    bookie_racks_min: int = 2
    """Racks that the copies of an entry should stand in, where the admin API was told the bookies' racks."""
    bookie_racks_enforced: bool = False
    """Whether no ledger is better than one whose copies stand in fewer racks."""
    bookie_region_copies: str = ""
    """Copies of each entry by region, as here=3,there=3, for bookies whose racks are as /here/rack; empty:
    regions are of no account."""
    bookie_tls: bool = False
    """Whether bookies are talked to under TLS."""
    bookie_tls_ca: Path | None = None
    """PEM file of who signs the bookies' certificates; None: whom this machine trusts."""
    bookie_tls_certificate: Path | None = None
    bookie_tls_key: Path | None = None
    """PEM files of the certificate that is shown to bookies; None: none is."""
    bookie_tls_hostnames: bool = True
    """Whether a bookie's certificate must be for the host that it is reached at."""
    bookie_user: str = ""
    bookie_password: SecretSource | None = None
    """User and password that are proven to bookies (SASL); empty: nothing is."""


def region_copies(text: str) -> dict[str, int]:
    """What `bookie_region_copies` says, empty for an empty one. Raises StartupError."""
    copies: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        region, _, count = (word.strip() for word in part.partition("="))
        if not region or region in copies or not count.isdecimal() or not int(count):
            raise StartupError(f"bookie_region_copies is {text!r}; it must be as here=3,there=3")
        copies[region] = int(count)
    return copies


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
    if settings.bookie_racks_min < 1:
        raise StartupError("bookie_racks_min must be at least 1")
    copies = region_copies(settings.bookie_region_copies)
    if copies and sum(copies.values()) != writes:
        raise StartupError(
            f"bookie_region_copies {settings.bookie_region_copies!r} are {sum(copies.values())} copies of an"
            f" entry, and ledger_write_quorum is {writes}; they must be the same"
        )
    if (settings.bookie_tls_certificate is None) != (settings.bookie_tls_key is None):
        raise StartupError("bookie_tls_certificate and bookie_tls_key go together; set both or none")
    if bool(settings.bookie_user) != (settings.bookie_password is not None):
        raise StartupError("bookie_user and bookie_password go together; set both or none")
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
