"""From what an operator writes to an `Authentication`.

The libraries of the providers come with the extra `auth` and are loaded only here, when a provider needs
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.auth.authentication import Authentication, Provider, ProviderChain, TlsProvider
from magnetar.auth.identity import METHOD_BASIC, METHOD_TLS, METHOD_TOKEN, PROVIDER_OPENID
from magnetar.auth.secrets import SecretSource, content
from magnetar.base.errors import StartupError

METHODS: Final = (METHOD_TLS, METHOD_TOKEN, METHOD_BASIC, PROVIDER_OPENID)
"""Names of the providers. Those of `token` and `openid` both take what clients call a token."""
_EXTRA: Final = "install it with: pip install '.[auth]' in a clone"


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """Whose tokens are taken, and how their keys are fetched."""

    issuers: tuple[str, ...] = ()
    """URLs, as tokens name them."""
    audiences: tuple[str, ...] = ()
    """One of them must be named by a token."""
    trust_certificates: Path | None = None
    """Whom to trust when keys are fetched, PEM; None: whom the system trusts."""
    role_claim: str = "sub"
    clock_skew_s: int = 0
    require_https: bool = True
    """False allows plain HTTP to this machine."""
    refresh_s: int = 64_800
    """Age at which keys are fetched anew."""
    expiry_s: int = 86_400
    """Age at which keys count no more."""
    miss_s: int = 300
    """Time between two fetches because of a key that is not known."""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who is let in, and how it is proven."""

    methods: tuple[str, ...] = ()
    """Some of METHODS; none: everybody may do everything."""
    token_secret_key: SecretSource | None = None
    """File with the secret of tokens signed by HMAC."""
    token_public_key: SecretSource | None = None
    """File with the public key, PEM or DER, of tokens signed by RSA or EC."""
    token_role_claim: str = "sub"
    token_audience: str = ""
    token_clock_skew_s: int = 60
    """How far the clocks of issuer and broker may differ."""
    openid: OpenIdSettings = field(default_factory=OpenIdSettings)
    basic_users: SecretSource | None = None
    """htpasswd file."""
    anonymous_role: str = ""
    proxy_roles: tuple[str, ...] = ()
    verify_original: bool = True
    """Whether proxies must forward their clients' credentials."""
    renewal_check_s: int = 60


def authentication(settings: AuthSettings) -> Authentication:
    """Raises StartupError for what is missing or cannot be read."""
    providers: dict[str, list[Provider]] = {}
    for name in dict.fromkeys(settings.methods):
        if name == METHOD_TLS:
            provider: Provider = TlsProvider()
        elif name == METHOD_TOKEN:
            provider = _token(settings)
        elif name == METHOD_BASIC:
            provider = _basic(settings)
        elif name == PROVIDER_OPENID:
            provider = _openid(settings.openid)
        else:
            raise StartupError(f"authentication method {name!r} is unknown; known are {', '.join(METHODS)}")
        providers.setdefault(METHOD_TOKEN if name == PROVIDER_OPENID else name, []).append(provider)
    return Authentication(
        {method: many[0] if len(many) == 1 else ProviderChain(many) for method, many in providers.items()},
        settings.anonymous_role,
        proxy_roles=frozenset(settings.proxy_roles),
        verify_original=settings.verify_original,
        renewal_check_s=settings.renewal_check_s,
    )


def _token(settings: AuthSettings) -> Provider:
    secret, public = settings.token_secret_key, settings.token_public_key
    file = secret or public
    if file is None or (secret is not None and public is not None):
        raise StartupError(
            "authentication by token needs either token_secret_key or token_public_key; set one of them"
        )
    data = content(file)
    try:
        from magnetar.auth import token
    except ImportError as error:
        raise StartupError(f"authentication by token needs joserfc; {_EXTRA}") from error
    try:
        key = token.secret_key(data) if secret is not None else token.public_key(data)
    except ValueError as error:
        raise StartupError(f"the key file {file} cannot be used: {error}; give another one") from error
    return token.TokenProvider(
        key,
        role_claim=settings.token_role_claim,
        audience=settings.token_audience,
        leeway_s=settings.token_clock_skew_s,
    )


def _openid(settings: OpenIdSettings) -> Provider:
    try:
        from magnetar.auth.https_fetch import HttpsFetch
        from magnetar.auth.issuer_keys import CacheTimes
        from magnetar.auth.openid import OpenIdProvider
    except ImportError as error:
        raise StartupError(f"authentication by openid needs joserfc; {_EXTRA}") from error
    trusted = settings.trust_certificates
    try:
        fetch = HttpsFetch(trusted)
    except OSError as error:
        raise StartupError(
            f"the certificates in {trusted} cannot be used: {error.strerror or error}; check them"
        ) from error
    try:
        return OpenIdProvider(
            settings.issuers,
            audiences=settings.audiences,
            fetch=fetch,
            role_claim=settings.role_claim,
            leeway_s=settings.clock_skew_s,
            require_https=settings.require_https,
            times=CacheTimes(settings.refresh_s * 1000, settings.expiry_s * 1000, settings.miss_s * 1000),
        )
    except ValueError as error:
        raise StartupError(
            f"authentication by openid: {error}; correct openid_issuers and openid_audiences"
        ) from error


def _basic(settings: AuthSettings) -> Provider:
    if settings.basic_users is None:
        raise StartupError("authentication by basic needs basic_users, an htpasswd file; set it")
    text = content(settings.basic_users)
    try:
        from magnetar.auth.basic import BasicProvider
    except ImportError as error:
        raise StartupError(f"authentication by basic needs libpass; {_EXTRA}") from error
    try:
        return BasicProvider(text.decode())
    except ValueError as error:
        raise StartupError(f"{settings.basic_users}: {error}; correct it") from error
