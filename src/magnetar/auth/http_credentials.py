"""Reads the credentials of an HTTP request (pure)."""

from __future__ import annotations

import base64
import binascii

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_BASIC, METHOD_TLS, METHOD_TOKEN, Credentials


def credentials_of(
    authorization: str,
    method: str,
    *,
    certificate_role: str | None,
    takes_certificates: bool,
    token: str = "",
) -> Credentials:
    """The credentials of a request: its Authorization header, else `token`, else the client's certificate.

    `method`: the method that the request names, "" for none. `takes_certificates`: whether a certificate
    alone counts as a credential. Raises AuthenticationError.
    """
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return Credentials(method or METHOD_TOKEN, rest.strip().encode(), certificate_role)
    if scheme.lower() == "basic":
        try:
            return Credentials(
                method or METHOD_BASIC, base64.b64decode(rest, validate=True), certificate_role
            )
        except (ValueError, binascii.Error) as error:
            raise AuthenticationError("the Authorization header is not base64") from error
    if scheme:
        raise AuthenticationError("the scheme of the Authorization header is not offered")
    if token:
        return Credentials(method or METHOD_TOKEN, token.encode(), certificate_role)
    if certificate_role is not None and takes_certificates:
        return Credentials(METHOD_TLS, b"", certificate_role)
    return Credentials(method)
