"""Builds an `Authentication` from settings, part by part, so that each part can be rebuilt alone.

The libraries of the providers come with the extra `auth`. They are loaded only here, when a provider needs
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.auth.authentication import Authentication, Provider, ProviderChain, TlsProvider
from magnetar.auth.identity import METHOD_BASIC, METHOD_TLS, METHOD_TOKEN, PROVIDER_OPENID
from magnetar.auth.secrets import SecretSource, content
from magnetar.auth.settings import METHODS, AuthSettings
from magnetar.auth.trust import fingerprints
from magnetar.base.errors import StartupError

_log = logging.getLogger("magnetar.auth")

_EXTRA: Final = "install it with: pip install '.[auth]' in a clone"
_REVOKED_ID_CHARS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Part:
    """One provider and its files."""

    name: str
    """One of METHODS."""
    files: tuple[Path, ...]
    build: Callable[[Provider | None], Provider]
    """Builds the provider from the present files; gets the provider that it replaces, if any. Raises
    StartupError when a file is missing or unusable."""


def parts(settings: AuthSettings) -> list[Part]:
    """The parts for `settings`, in their order. Raises StartupError for an unknown method."""
    makers: dict[str, tuple[tuple[SecretSource | None, ...], Callable[[Provider | None], Provider]]] = {
        METHOD_TLS: ((settings.tls_ca,), lambda _: _tls(settings)),
        METHOD_TOKEN: (
            (settings.token_secret_key, settings.token_public_key, settings.revoked_tokens),
            lambda earlier: _token(settings, earlier),
        ),
        METHOD_BASIC: ((settings.basic_users,), lambda _: _basic(settings)),
        PROVIDER_OPENID: (
            (settings.openid.trust_certificates, settings.revoked_tokens),
            lambda earlier: _openid(settings, earlier),
        ),
    }
    result = []
    for name in dict.fromkeys(settings.methods):
        if name not in makers:
            raise StartupError(f"authentication method {name!r} is unknown; known are {', '.join(METHODS)}")
        sources, build = makers[name]
        result.append(Part(name, tuple(each for each in sources if isinstance(each, Path)), build))
    return result


def composed(settings: AuthSettings, providers: Mapping[str, Provider]) -> Authentication:
    """An Authentication of these providers. `providers`: one of each part, by its name, in the order in which
    they are tried."""
    methods: dict[str, list[Provider]] = {}
    for name, provider in providers.items():
        methods.setdefault(METHOD_TOKEN if name == PROVIDER_OPENID else name, []).append(provider)
    return Authentication(
        {method: many[0] if len(many) == 1 else ProviderChain(many) for method, many in methods.items()},
        settings.anonymous_role,
        proxy_roles=frozenset(settings.proxy_roles),
        verify_original=settings.verify_original,
        renewal_check_s=settings.renewal_check_s,
    )


def authentication(settings: AuthSettings) -> Authentication:
    """Builds the Authentication for `settings`. Raises StartupError when a file is missing or unreadable."""
    return composed(settings, {part.name: part.build(None) for part in parts(settings)})


def _tls(settings: AuthSettings) -> Provider:
    if settings.tls_ca is None:
        return TlsProvider()
    return TlsProvider(fingerprints(content(settings.tls_ca)))


def _revoked(settings: AuthSettings) -> frozenset[str]:
    """The ids in the file of revoked tokens, one per line; "#" begins a comment. Raises StartupError."""
    file = settings.revoked_tokens
    if file is None:
        return frozenset()
    try:
        lines = [line.strip() for line in content(file).decode().splitlines()]
    except UnicodeDecodeError as error:
        raise StartupError(f"{file} is not a text; it must have the id of a token in each line") from error
    found = frozenset(line for line in lines if line and not line.startswith("#"))
    if any(len(line) > _REVOKED_ID_CHARS_MAX for line in found):
        raise StartupError(f"{file}: a line is longer than any token's id; name ids, not tokens")
    return found


def _tell_let_in_again(file: Path | None, before: Set[str], now: Set[str]) -> None:
    """Logs identities that are admitted again: that may be intended, or the file was read while it was
    written."""
    if before - now:
        _log.warning(
            "%s has %d ids of revoked tokens, %d before: the removed tokens are valid again. If this was "
            "not intended, restore the file; write a new one beside the old one and rename it",
            file,
            len(now),
            len(before),
        )


def _token(settings: AuthSettings, earlier: Provider | None) -> Provider:
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
    made = token.TokenProvider(
        key,
        role_claim=settings.token_role_claim,
        audience=settings.token_audience,
        leeway_s=settings.token_clock_skew_s,
        revoked=_revoked(settings),
        several=settings.several_roles,
    )
    if isinstance(earlier, token.TokenProvider):
        _tell_let_in_again(settings.revoked_tokens, earlier.revoked, made.revoked)
    return made


def _openid(auth: AuthSettings, earlier: Provider | None) -> Provider:
    settings = auth.openid
    try:
        from magnetar.auth.https_fetch import HttpsFetch
        from magnetar.auth.issuer_keys import CacheTimes
        from magnetar.auth.openid import OpenIdProvider, TokenRules
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
        made = OpenIdProvider(
            settings.issuers,
            TokenRules(
                audiences=settings.audiences,
                role_claim=settings.role_claim,
                leeway_s=settings.clock_skew_s,
                several=auth.several_roles,
            ),
            fetch=fetch,
            require_https=settings.require_https,
            times=CacheTimes(settings.refresh_s * 1000, settings.expiry_s * 1000, settings.miss_s * 1000),
            revoked=_revoked(auth),
        )
    except ValueError as error:
        raise StartupError(
            f"authentication by openid: {error}; correct openid_issuers and openid_audiences"
        ) from error
    if isinstance(earlier, OpenIdProvider):
        # The fetched keys stay: otherwise an issuer that does not answer would lock out all clients.
        made.keep_keys_of(earlier)
        _tell_let_in_again(auth.revoked_tokens, earlier.revoked, made.revoked)
    return made


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
