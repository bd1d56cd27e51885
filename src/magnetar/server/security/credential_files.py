"""The credentials of a broker, built from files that may change while it runs: see `watched_files.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from magnetar.auth.authentication import Authentication, Provider
from magnetar.auth.parts import Part, composed, parts
from magnetar.base.errors import StartupError
from magnetar.runtime.broker_trust import new_context, use_context
from magnetar.server.security import security
from magnetar.server.security.served_tls import RenewedContext, renewed
from magnetar.server.security.watched_files import TLS, CredentialFiles, Watched
from magnetar.server.settings.config import StandaloneConfig

_BROKERS: Final = "trust in brokers"


class BrokerCredentials:
    """TLS and authentication of a broker."""

    def __init__(self, config: StandaloneConfig) -> None:
        """Raises StartupError for what is missing or cannot be used."""
        self._config = config
        self._settings = security.auth_settings(config)
        self._providers: dict[str, Provider] = {}
        self.tls: RenewedContext | None = None
        """None: TLS is not served."""
        self.flight_tls: RenewedContext | None = None
        """For clients of gRPC, which agree on HTTP/2 in the handshake. None: it is not served."""
        secret = (config.tls_key, config.token_secret_key, config.basic_users)
        watched = self._tls() + self._trust() + self._parts()
        used = {file for each in watched for file in each.files}
        self.files = CredentialFiles(watched, [file for file in secret if file in used])
        self.files.begin()

    @property
    def authentication(self) -> Authentication | None:
        """The present authentication; None when every client may do everything."""
        return composed(self._settings, self._providers) if self._providers else None

    def _tls(self) -> list[Watched]:
        config = self._config
        files = (config.tls_certificate, config.tls_key, config.tls_ca)
        if config.tls_certificate is None or config.tls_key is None:
            return []

        def read() -> Callable[[], None]:
            context = security.tls_context(config)
            assert context is not None, "there is a certificate"
            flight = security.tls_context(config, ["h2"]) if config.flight_sql else None

            def serve() -> None:
                if self.tls is None:
                    self.tls = renewed(context)
                self.tls.current = context
                if flight is not None:
                    self.flight_tls = self.flight_tls or renewed(flight)
                    self.flight_tls.current = flight

            return serve

        return [Watched(TLS, tuple(file for file in files if file is not None), read)]

    def _trust(self) -> list[Watched]:
        file = self._config.broker_tls_ca
        if file is None:
            return []

        def read() -> Callable[[], None]:
            try:
                context = new_context(str(file))
            except OSError as error:
                raise StartupError(
                    f"the certificates in {file} cannot be used: {error.strerror or error};"
                    " check broker_tls_ca"
                ) from error
            return partial(use_context, str(file), context)

        return [Watched(_BROKERS, (file,), read)]

    def _parts(self) -> list[Watched]:
        return [Watched(part.name, part.files, partial(self._part, part)) for part in parts(self._settings)]

    def _part(self, part: Part) -> Callable[[], None]:
        provider = part.build(self._providers.get(part.name))
        return partial(self._providers.__setitem__, part.name, provider)
