"""Settings of the storage of messages: in this process, on bookies of this machine, or on a cluster's
bookies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.auth.secrets import SecretSource
from magnetar.base.errors import StartupError
from magnetar.server.settings.monitoring_settings import MonitoringSettings

DIGESTS: Final = ("CRC32C", "CRC32", "HMAC", "DUMMY")
SERVED: Final = "served:"
"""Begins the `metadata_url` of a broker process whose metadata and messages a further process of this
machine has; no setting can say so. The folder where they meet follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(MonitoringSettings):
    """The settings of the storage of messages."""

    bookies: int = 0
    """Number of bookies that the broker starts on this machine to store its messages; 0: the broker's process
    stores them. A data folder cannot change between 0 and more. 0, or from `ledger_ensemble_size` to 100."""
    metadata_url: str = ""
    """Metadata service of a cluster of bookies, Magnetar's or Apache's, that keeps messages and everything
    else: `zk://host:port,host:port/ledgers` or `etcd://host:port/ledgers`."""
    metadata_session_timeout_seconds: int = 10
    """Time, in seconds, without contact to the metadata service after which the broker loses its session:
    `magnetar standalone` exits, `magnetar broker` closes its topics. At least 1."""
    ledger_ensemble_size: int = 2
    """Bookies that share the entries of a ledger. At least `ledger_write_quorum`."""
    ledger_write_quorum: int = 2
    """Copies of each entry. From `ledger_ack_quorum` to `ledger_ensemble_size`."""
    ledger_ack_quorum: int = 2
    """Copies that must be durable before an entry is acknowledged. From 1 to `ledger_write_quorum`."""
    ledger_digest: str = DIGESTS[0]
    """Checksum of entries on bookies: CRC32C, CRC32, HMAC or DUMMY."""
    bookie_racks_min: int = 2
    """Number of racks in which the copies of an entry should be, when the racks are known
    (`/admin/v2/bookies/racks-info`). At least 1."""
    bookie_racks_enforced: bool = False
    """True: a ledger is not created when it would have fewer racks, or fewer copies in a region, than
    configured."""
    bookie_region_copies: str = ""
    """Copies of each entry by region, such as `here=3,there=3`, for bookies whose racks are named like
    `/here/rack`."""
    bookie_tls: bool = False
    """True: connect to bookies over TLS."""
    bookie_tls_ca: Path | None = None
    """PEM file of the authorities that sign the bookies' certificates; empty: those that the system
    trusts."""
    bookie_tls_certificate: Path | None = None
    """PEM file of the client certificate for bookies."""
    bookie_tls_key: Path | None = None
    """PEM file of the key of `bookie_tls_certificate`."""
    bookie_tls_hostnames: bool = True
    """True: a bookie's certificate must be valid for the host under which it is reached."""
    bookie_user: str = ""
    """User of the SASL credentials for bookies; empty: none."""
    bookie_password: SecretSource | None = None
    """File with the password of `bookie_user`, or `data:;base64,` and the password."""

    @property
    def holds_bookie_secrets(self) -> bool:
        """Whether the process has a key or a password for bookies in memory."""
        return self.bookie_tls_key is not None or self.bookie_password is not None


def region_copies(text: str) -> dict[str, int]:
    """Copies by region from the setting `bookie_region_copies`. Raises StartupError."""
    copies: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        region, _, count = (word.strip() for word in part.partition("="))
        if not region or region in copies or not count.isdecimal() or not int(count):
            raise StartupError(f"bookie_region_copies is {text!r}; it must be as here=3,there=3")
        copies[region] = int(count)
    return copies


def check_ledgers(settings: LedgerSettings) -> None:
    """Checks the settings. Raises StartupError, which names the setting and the rule."""
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
