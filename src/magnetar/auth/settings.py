"""Settings of authentication; `parts.py` builds an `Authentication` from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.auth.identity import METHOD_BASIC, METHOD_TLS, METHOD_TOKEN, PROVIDER_OPENID
from magnetar.auth.secrets import SecretSource

METHODS: Final = (METHOD_TLS, METHOD_TOKEN, METHOD_BASIC, PROVIDER_OPENID)
"""Names of the providers. Both `token` and `openid` accept the clients' method "token"."""


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """The accepted issuers, and the fetching of their keys."""

    issuers: tuple[str, ...] = ()
    """URLs of the issuers, as tokens name them in `iss`."""
    audiences: tuple[str, ...] = ()
    """Accepted audiences; a token must name one of them."""
    trust_certificates: Path | None = None
    """File of certificates, PEM, that are trusted when keys are fetched; None: those of the system."""
    role_claim: str = "sub"
    clock_skew_s: int = 0
    require_https: bool = True
    """Whether issuers need HTTPS; False allows plain HTTP to this machine. Default True."""
    refresh_s: int = 64_800
    """Seconds after which keys are fetched again. Default 64,800."""
    expiry_s: int = 86_400
    """Seconds after which fetched keys expire. Default 86,400."""
    miss_s: int = 300
    """Seconds between two fetches because of an unknown key. Default 300."""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """The accepted methods of authentication, and their keys."""

    methods: tuple[str, ...] = ()
    """Accepted methods, from METHODS; empty: no authentication, every client may do everything."""
    tls_ca: Path | None = None
    """File of the authorities' certificates, PEM, that sign clients' certificates."""
    several_roles: bool = False
    """Whether all items of a list of roles in a token count; else only the first."""
    revoked_tokens: Path | None = None
    """File with the ids of revoked tokens, ours or an issuer's."""
    token_secret_key: SecretSource | None = None
    """Secret key of tokens signed by HMAC."""
    token_public_key: SecretSource | None = None
    """Public key, PEM or DER, of tokens signed by RSA or EC."""
    token_role_claim: str = "sub"
    token_audience: str = ""
    token_clock_skew_s: int = 60
    """Seconds by which the clocks of issuer and broker may differ. Default 60."""
    openid: OpenIdSettings = field(default_factory=OpenIdSettings)
    basic_users: SecretSource | None = None
    """The htpasswd file of users and passwords."""
    anonymous_role: str = ""
    proxy_roles: tuple[str, ...] = ()
    verify_original: bool = True
    """Whether proxies must forward their clients' credentials. Default True."""
    renewal_check_s: int = 60
