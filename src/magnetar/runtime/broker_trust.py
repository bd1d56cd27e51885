"""TLS for connections to the brokers of one's own cluster."""

from __future__ import annotations

import ssl
from typing import Final

_contexts: Final[dict[str, ssl.SSLContext]] = {}
"""By the file of trusted authorities. A process has one or two."""


def new_context(trust_certs: str) -> ssl.SSLContext:
    """Reads the file: see `broker_context`."""
    return ssl.create_default_context(cafile=trust_certs or None)


def use_context(trust_certs: str, context: ssl.SSLContext) -> None:
    """New connections use this context, made of the file as it is now."""
    _contexts[trust_certs] = context


def broker_context(trust_certs: str) -> ssl.SSLContext:
    """The context for connections. `trust_certs`: PEM file of the authorities that sign the brokers'
    certificates, which is read once; "": those that the system trusts.

    Raises OSError, of which ssl.SSLError is a kind, when the file cannot be used.
    """
    known = _contexts.get(trust_certs)
    if known is None:
        known = _contexts[trust_certs] = new_context(trust_certs)
    return known
