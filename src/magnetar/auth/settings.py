"""What an operator writes about who is let in; `parts.py` makes an `Authentication` of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.auth.identity import METHOD_BASIC, METHOD_TLS, METHOD_TOKEN, PROVIDER_OPENID
from magnetar.auth.secrets import SecretSource

METHODS: Final = (METHOD_TLS, METHOD_TOKEN, METHOD_BASIC, PROVIDER_OPENID)
"""Names of the providers. Those of `token` and `openid` both take what clients call a token."""


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
    """The accepted methods of authentication, and their keys."""

    methods: tuple[str, ...] = ()
    """Some of METHODS; none: every client may do everything."""
    tls_ca: Path | None = None
    """Certificates, PEM, of those who sign clients' certificates."""
    several_roles: bool = False
    """Whether all roles of a token's claim that is a list count; else its first."""
    revoked_tokens: Path | None = None
    """File with the ids of tokens, ours or an issuer's, that count no more."""
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
