"""Builds TLS and the settings of authentication from the process's settings."""

from __future__ import annotations

import ssl

from magnetar.auth.secrets import content
from magnetar.auth.settings import AuthSettings, OpenIdSettings
from magnetar.auth.trust import fingerprints
from magnetar.base.errors import StartupError
from magnetar.server.security import tls_rules
from magnetar.server.security.served_tls import ServedContext
from magnetar.server.settings.config import StandaloneConfig, names


def auth_settings(config: StandaloneConfig) -> AuthSettings:
    """The settings of authentication."""
    return AuthSettings(
        methods=names(config.authentication),
        tls_ca=config.tls_ca,
        several_roles=config.token_multiple_roles,
        revoked_tokens=config.token_revoked_ids_file,
        token_secret_key=config.token_secret_key,
        token_public_key=config.token_public_key,
        token_role_claim=config.token_role_claim,
        token_audience=config.token_audience,
        token_clock_skew_s=config.token_allowed_clock_skew_seconds,
        openid=OpenIdSettings(
            issuers=names(config.openid_issuers),
            audiences=names(config.openid_audiences),
            trust_certificates=config.openid_trust_certificates,
            role_claim=config.openid_role_claim,
            clock_skew_s=config.openid_accepted_time_leeway_seconds,
            require_https=config.openid_require_issuers_use_https,
            refresh_s=config.openid_cache_refresh_after_write_seconds,
            expiry_s=config.openid_cache_expiration_seconds,
            miss_s=config.openid_key_id_cache_miss_refresh_seconds,
        ),
        basic_users=config.basic_users,
        anonymous_role=config.anonymous_role,
        proxy_roles=names(config.proxy_roles),
        verify_original=config.authenticate_original_auth_data,
        renewal_check_s=config.authentication_refresh_check_seconds,
    )


def tls_context(config: StandaloneConfig, protocols: list[str] | None = None) -> ServedContext | None:
    """The TLS context; None without a certificate. `protocols`: those that it agrees on by ALPN; None: none.
    Raises StartupError."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    context = ServedContext(ssl.PROTOCOL_TLS_SERVER)
    if protocols is not None:
        context.set_alpn_protocols(protocols)
    tls_rules.apply(context, names(config.tls_protocols), names(config.tls_ciphers))
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"certificate {config.tls_certificate} and key {config.tls_key} cannot be used:"
            f" {error.strerror or error}; check tls_certificate and tls_key"
        ) from error
    if config.tls_ca is not None:
        try:
            context.load_verify_locations(config.tls_ca)
        except (OSError, ssl.SSLError) as error:
            raise StartupError(
                f"the certificates in {config.tls_ca} cannot be used: {error.strerror or error}; check tls_ca"
            ) from error
        context.trusted = fingerprints(content(config.tls_ca))
        # A client without a certificate may still send another credential.
        required = config.tls_require_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context
