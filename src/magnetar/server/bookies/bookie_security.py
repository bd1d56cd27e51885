"""Applies the security settings of a bookie, and again when its files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from magnetar.base.errors import StartupError
from magnetar.bookie.network.access import Access
from magnetar.server.security.served_tls import RenewedContext, renewed
from magnetar.server.security.watched_files import TLS, CredentialFiles, Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSecurity:
    """Settings of TLS and of the admitted clients."""

    tls_certificate: Path | None = None
    tls_key: Path | None = None
    """Certificate and key, PEM files; TLS needs both."""
    tls_trust_certs: Path | None = None
    """File of the authorities' certificates that sign clients' certificates; None: clients need none."""
    tls_required: bool = False
    authorized_roles: tuple[str, ...] = ()
    """Admitted roles in clients' certificates; empty: every signed certificate, and clients without one."""
    users: Path | None = None
    """File of lines USER:PASSWORD, one of which clients must prove; None: no password."""

    def access(self) -> Access:
        """The requirements for clients. Raises StartupError for contradictory settings and unusable files."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise StartupError("TLS needs a certificate and a key; give both or none")
        if self.tls_certificate is None and (self.tls_required or self.authorized_roles):
            raise StartupError("TLS cannot be asked for without a certificate; give one and its key")
        if self.authorized_roles and self.tls_trust_certs is None:
            raise StartupError(
                "authorized_roles needs tls_trust_certs, the authorities that sign clients' certificates; "
                "set it"
            )
        users = {} if self.users is None else _users(self.users)
        return Access(tls_required=self.tls_required, roles=frozenset(self.authorized_roles), users=users)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None without a certificate. Raises StartupError."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_certificate, self.tls_key)
            if self.tls_trust_certs is not None:
                context.load_verify_locations(self.tls_trust_certs)
                context.verify_mode = ssl.CERT_REQUIRED if self.authorized_roles else ssl.CERT_OPTIONAL
        except OSError as error:
            files = (self.tls_certificate, self.tls_key, self.tls_trust_certs)
            named = ", ".join(str(file) for file in files if file is not None)
            raise StartupError(f"TLS: {named} cannot be used: {error.strerror or error}") from error
        return context


class BookieCredentials:
    """The present credentials of a bookie: new clients are checked by the newest files; connected ones
    stay."""

    def __init__(self, security: BookieSecurity) -> None:
        """Reads the files. Raises StartupError for contradictory settings and unusable files."""
        self._security = security
        self._users: dict[str, str] = {}
        self.tls: RenewedContext | None = None
        """None: there is none."""
        watched = []
        if security.tls_certificate is not None:
            files = (security.tls_certificate, security.tls_key, security.tls_trust_certs)
            watched.append(Watched(TLS, tuple(file for file in files if file is not None), self._read_tls))
        if security.users is not None:
            watched.append(Watched("users", (security.users,), self._read_users))
        self.access = replace(security.access(), users=self._users)
        secret = (security.tls_key, security.users)
        self.files = CredentialFiles(watched, [file for file in secret if file is not None])
        self.files.begin()

    def _read_tls(self) -> Callable[[], None]:
        context = self._security.tls()
        assert context is not None, "there is a certificate"

        def serve() -> None:
            if self.tls is None:
                self.tls = renewed(context)
            self.tls.current = context

        return serve

    def _read_users(self) -> Callable[[], None]:
        assert self._security.users is not None, "it is read only where there is one"
        users = _users(self._security.users)

        def let_in() -> None:
            # The same object: the server's options hold it for ever.
            self._users.clear()
            self._users.update(users)

        return let_in


def _users(file: Path) -> dict[str, str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"{file} cannot be read: {error}") from error
    users: dict[str, str] = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not (user and colon and password):
            raise StartupError(f"{file}: a line is not USER:PASSWORD")
        users[user] = password
    if not users:
        raise StartupError(f"{file} has no users, so no client could connect")
    return users
