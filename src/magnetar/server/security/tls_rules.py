"""Applies the configured TLS versions and cipher suites (pure).

Source: RFC 8446 and 5246 (names of suites); OpenSSL's ciphers(1) for its own names; Pulsar's `tlsProtocols`
and `tlsCiphers`, which are Java's names.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import StartupError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_1_3: Final = frozenset(
    ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
)
"""OpenSSL's default suites of TLS 1.3, which Python cannot change."""
_IANA: Final = re.compile(r"TLS_(?:(?P<exchange>[A-Z0-9_]+)_)?WITH_(?P<cipher>[A-Z0-9_]+)")


def apply(context: ssl.SSLContext, protocols: Sequence[str], ciphers: Sequence[str]) -> None:
    """Restricts a context to these versions and suites; empty: the default, TLS 1.2 and 1.3.

    Raises StartupError for unknown or unsupported names.
    """
    unknown = [name for name in protocols if name not in _VERSIONS]
    if unknown:
        raise StartupError(
            f"tls_protocols: {', '.join(unknown)} is not served; name one or both of {', '.join(_VERSIONS)}"
        )
    versions = {_VERSIONS[name] for name in protocols} or set(_VERSIONS.values())
    if ciphers:
        versions &= _with_suites(context, ciphers)
    if not versions:
        raise StartupError("tls_ciphers: none of these suites is of a version in tls_protocols; add one")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _with_suites(context: ssl.SSLContext, ciphers: Sequence[str]) -> set[ssl.TLSVersion]:
    """Sets the suites; returns the TLS versions that have some of them."""
    newer = _SUITES_1_3.intersection(ciphers)
    if newer and newer != _SUITES_1_3:
        raise StartupError(
            "tls_ciphers: Python's TLS serves all suites of TLS 1.3 or none; name all of"
            f" {', '.join(sorted(_SUITES_1_3))}, or leave them out"
        )
    older = [openssl_name(name) for name in ciphers if name not in _SUITES_1_3]
    versions = {ssl.TLSVersion.TLSv1_3} if newer else set()
    if older:
        for name, given in zip(older, (each for each in ciphers if each not in _SUITES_1_3), strict=True):
            try:
                context.set_ciphers(name)
            except ssl.SSLError as error:
                raise StartupError(
                    f"tls_ciphers: {given} is not known here; see `openssl ciphers`"
                ) from error
        context.set_ciphers(":".join(older))
        versions.add(ssl.TLSVersion.TLSv1_2)
    return versions


def openssl_name(name: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite; a name that is not IANA's is returned unchanged."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    exchange = (found["exchange"] or "RSA").replace("_", "-")
    cipher = re.sub(r"^AES_(\d+)", r"AES\1", found["cipher"]).replace("_CBC", "").replace("_", "-")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("-SHA256")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
