"""The options of the ledger client and the placement of copies, from the settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from magnetar.auth.secrets import SecretSource, content
from magnetar.base.errors import StartupError
from magnetar.ledger.client.cluster import Placement, by_chance
from magnetar.ledger.client.ledger_options import LedgerClientOptions, LedgerUser
from magnetar.ledger.client.placement import RackPlacement
from magnetar.ledger.client.regions import RegionPlacement, RegionRules
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.runtime.tasks import TaskGroup
from magnetar.server.security.served_tls import RenewedContext, renewed
from magnetar.server.security.watched_files import CredentialFiles, Watched
from magnetar.server.settings.ledger_settings import LedgerSettings, region_copies
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_LIMIT

_TLS: Final = "tls to bookies"
_PASSWORD: Final = "password for bookies"


class LedgerCredentials:
    """The credentials that bookies are shown, made of files that may change: each new connection shows the
    newest."""

    def __init__(self, settings: LedgerSettings) -> None:
        """Reads the files. Raises StartupError for those that cannot be used."""
        self._settings = settings
        self.tls: RenewedContext | None = None
        """None: connections are in clear."""
        self.user: LedgerUser | None = None
        """None: none is shown."""
        watched = []
        if settings.bookie_tls:
            named = (settings.bookie_tls_ca, settings.bookie_tls_certificate, settings.bookie_tls_key)
            watched.append(Watched(_TLS, _files(*named), self._read_tls))
        if settings.bookie_user and settings.bookie_password is not None:
            watched.append(Watched(_PASSWORD, _files(settings.bookie_password), self._read_password))
        self.files = CredentialFiles(watched, _files(settings.bookie_tls_key, settings.bookie_password))
        self.files.begin()

    def follow(self, seconds: float, cleanup: AsyncExitStack) -> None:
        """Has the files looked at as often, until `cleanup`."""
        if self.files.watched:
            looking = TaskGroup("credentials for bookies")
            looking.every(seconds, self.files.look)
            cleanup.push_async_callback(looking.close)

    def _read_tls(self) -> Callable[[], None]:
        context = _tls(self._settings)

        def use() -> None:
            if self.tls is None:
                self.tls = renewed(context, server_side=False)
            self.tls.current = context

        return use

    def _read_password(self) -> Callable[[], None]:
        password = _password(self._settings)

        def use() -> None:
            if self.user is None:
                self.user = LedgerUser(self._settings.bookie_user, password)
            # The same object: the client's options hold it for ever.
            self.user.password = password

        return use


def client_options(
    settings: LedgerSettings,
    *,
    packet_bytes_max: int = PACKET_BYTES_LIMIT,
    credentials: LedgerCredentials | None = None,
) -> LedgerClientOptions:
    """The options of the ledger client. `packet_bytes_max`: largest packet of clients that write messages; a
    client that only copies keeps the default. `credentials`: of the same settings; None: they are read now,
    and never again.

    Raises StartupError for files that cannot be used.
    """
    shown = LedgerCredentials(settings) if credentials is None else credentials
    return LedgerClientOptions(
        tls=shown.tls, user=shown.user, new_ids_asked=True, packet_bytes_max=packet_bytes_max
    )


def _files(*given: SecretSource | None) -> tuple[Path, ...]:
    return tuple(each for each in given if isinstance(each, Path))


def _password(settings: LedgerSettings) -> str:
    assert settings.bookie_password is not None, "it was looked at before"
    try:
        return content(settings.bookie_password).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise StartupError(f"bookie_password is not a text: {error}") from error


def _tls(settings: LedgerSettings) -> ssl.SSLContext:
    files = (settings.bookie_tls_ca, settings.bookie_tls_certificate, settings.bookie_tls_key)
    try:
        context = ssl.create_default_context(cafile=settings.bookie_tls_ca)
        context.check_hostname = settings.bookie_tls_hostnames
        if settings.bookie_tls_certificate is not None:
            context.load_cert_chain(settings.bookie_tls_certificate, settings.bookie_tls_key)
    except OSError as error:
        named = ", ".join(str(file) for file in files if file is not None)
        raise StartupError(f"TLS to bookies: {named} cannot be used: {error.strerror or error}") from error
    return context


def placement(settings: LedgerSettings, racks: Callable[[str], str]) -> Placement:
    """The placement of copies. `racks`: returns the rack of a bookie, `/rack` or `/region/rack`. Raises
    StartupError when the copies do not add up."""
    if copies := region_copies(settings.bookie_region_copies):
        rules = RegionRules(copies, enforced=settings.bookie_racks_enforced)
        try:
            rules.pattern(QuorumLayout(settings.ledger_ensemble_size, settings.ledger_write_quorum, 1))
        except ValueError as error:
            raise StartupError(f"bookie_region_copies and ledger_ensemble_size: {error}") from error
        return RegionPlacement(racks, rules, shuffled=by_chance)
    return RackPlacement(
        racks,
        racks_min=settings.bookie_racks_min,
        enforced=settings.bookie_racks_enforced,
        shuffled=by_chance,
    )
