"""The credentials with which a proxy comes to brokers, made of files that may change while it runs."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.auth.identity import METHOD_TLS, METHOD_TOKEN, Credentials
from magnetar.base.errors import StartupError
from magnetar.server.security.served_tls import RenewedContext, renewed
from magnetar.server.security.watched_files import CredentialFiles, Watched
from magnetar.server.settings.proxy_settings import ProxySettings

_TOKEN: Final = "token for brokers"
_TLS: Final = "tls to brokers"


class ProxyCredentials:
    """Token and certificate of a proxy."""

    def __init__(self, settings: ProxySettings) -> None:
        """Raises StartupError for what is missing or cannot be used."""
        self._settings = settings
        self.own: Credentials | None = None
        """With which the proxy comes to brokers; None: with none."""
        self.tls: RenewedContext | None = None
        """TLS of connections to brokers; None: they are plain."""
        watched, secret = [], []
        if settings.broker_token:
            file = _token_file(settings.broker_token)
            watched.append(Watched(_TOKEN, () if file is None else (file,), self._read_token))
            secret += [] if file is None else [file]
        elif settings.broker_tls_certificate is not None:
            self.own = Credentials(METHOD_TLS)
        if settings.broker_tls:
            named = (settings.broker_tls_ca, settings.broker_tls_certificate, settings.broker_tls_key)
            files = tuple(file for file in named if file is not None)
            watched.append(Watched(_TLS, files, self._read_tls))
            secret += [] if settings.broker_tls_key is None else [settings.broker_tls_key]
        self.files = CredentialFiles(watched, secret)
        self.files.begin()

    def _read_token(self) -> Callable[[], None]:
        file = _token_file(self._settings.broker_token)
        if file is None:
            token = self._settings.broker_token.encode()
        else:
            try:
                token = file.read_bytes().strip()
            except OSError as error:
                raise StartupError(f"broker_token: {file} cannot be read: {error.strerror}") from error

        def use() -> None:
            self.own = Credentials(METHOD_TOKEN, token)

        return use

    def _read_tls(self) -> Callable[[], None]:
        settings = self._settings
        try:
            context = ssl.create_default_context(cafile=settings.broker_tls_ca)
            context.check_hostname = settings.broker_tls_hostnames
            if settings.broker_tls_certificate is not None:
                context.load_cert_chain(settings.broker_tls_certificate, settings.broker_tls_key)
        except OSError as error:
            raise StartupError(f"the files for TLS to brokers cannot be used: {error}") from error

        def use() -> None:
            if self.tls is None:
                self.tls = renewed(context, server_side=False)
            self.tls.current = context

        return use


def _token_file(given: str) -> Path | None:
    """The file in the setting `broker_token`; None: it is the token itself."""
    if not given.startswith("file:"):
        return None
    return Path(given.removeprefix("file:").replace("//", "/", 1))
