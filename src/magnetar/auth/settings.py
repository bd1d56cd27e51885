"""From what an operator writes to an `Authentication`.

The libraries of the providers come with the extra `auth` and are loaded only here, when a provider needs
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.auth.authentication import Authentication, Provider, TlsProvider
from magnetar.auth.identity import METHOD_BASIC, METHOD_TLS, METHOD_TOKEN
from magnetar.base.errors import StartupError

METHODS: Final = (METHOD_TLS, METHOD_TOKEN, METHOD_BASIC)
_EXTRA: Final = "install it with: pip install 'magnetar[auth]'"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who is let in, and how it is proven."""

    methods: tuple[str, ...] = ()
    """Some of METHODS; none: everybody may do everything."""
    token_secret_key: Path | None = None
    """File with the secret of tokens signed by HMAC."""
    token_public_key: Path | None = None
    """File with the public key, PEM or DER, of tokens signed by RSA or EC."""
    token_role_claim: str = "sub"
    token_audience: str = ""
    basic_users: Path | None = None
    """htpasswd file."""
    anonymous_role: str = ""


def authentication(settings: AuthSettings) -> Authentication:
    """Raises StartupError for what is missing or cannot be read."""
    providers: dict[str, Provider] = {}
    for method in settings.methods:
        if method == METHOD_TLS:
            providers[method] = TlsProvider()
        elif method == METHOD_TOKEN:
            providers[method] = _token(settings)
        elif method == METHOD_BASIC:
            providers[method] = _basic(settings)
        else:
            raise StartupError(f"authentication method {method!r} is unknown; known are {', '.join(METHODS)}")
    return Authentication(providers, settings.anonymous_role)


def _token(settings: AuthSettings) -> Provider:
    secret, public = settings.token_secret_key, settings.token_public_key
    file = secret or public
    if file is None or (secret is not None and public is not None):
        raise StartupError(
            "authentication by token needs either token_secret_key or token_public_key; set one of them"
        )
    data = _read(file)
    try:
        from magnetar.auth import token
    except ImportError as error:
        raise StartupError(f"authentication by token needs joserfc; {_EXTRA}") from error
    try:
        key = token.secret_key(data) if secret is not None else token.public_key(data)
    except ValueError as error:
        raise StartupError(f"the key file {file} cannot be used: {error}; give another one") from error
    return token.TokenProvider(key, role_claim=settings.token_role_claim, audience=settings.token_audience)


def _basic(settings: AuthSettings) -> Provider:
    if settings.basic_users is None:
        raise StartupError("authentication by basic needs basic_users, an htpasswd file; set it")
    text = _read(settings.basic_users)
    try:
        from magnetar.auth.basic import BasicProvider
    except ImportError as error:
        raise StartupError(f"authentication by basic needs libpass; {_EXTRA}") from error
    try:
        return BasicProvider(text.decode())
    except ValueError as error:
        raise StartupError(f"{settings.basic_users}: {error}; correct it") from error


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StartupError(f"{file} cannot be read: {error.strerror}; check the path") from error
