"""The SASL handshake DIGEST-MD5 by user and password. Synchronous; nonces are arguments.

The password is not sent, but an eavesdropper can try passwords against the messages: use it only with TLS or
on a trusted network. It is offered because Apache's bookies and clients support nothing else besides
Kerberos.
    server   realm="...",nonce="...",charset=utf-8,algorithm=md5-sess
    client   username="...",realm="...",nonce="...",nc=00000001,cnonce="...",digest-uri="...",
             response=...,qop=auth,charset=utf-8
    server   rspauth=...
Source: RFC 2831; the realm and the host in the URI are those of BookKeeper's SASL provider.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from magnetar.auth.errors import AuthenticationError

REALM: Final = "bookkeeper"
URI: Final = "bookkeeper/bookkeeper"
"""Service and host in the handshake: Apache's bookies and clients all use this text as their host."""
_QOP: Final = "auth"
_COUNT: Final = "00000001"
_FIELD: Final = re.compile(r'\s*([A-Za-z\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
_TOKEN_BYTES_MAX: Final = 4_096


class DigestError(AuthenticationError):
    """The other side has not proven the password, or sent an invalid DIGEST-MD5 message."""


class DigestServer:
    """The server's side of one handshake: call `challenge`, then `answer`."""

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        self._users = users
        self._nonce = nonce

    def challenge(self) -> bytes:
        """The challenge for the client."""
        return (
            f'realm="{REALM}",nonce="{self._nonce}",qop="{_QOP}",charset=utf-8,algorithm=md5-sess'
        ).encode()

    def answer(self, token: bytes) -> bytes:
        """Checks the client's answer; returns the proof that the server knows the password too. Raises
        DigestError."""
        said = _fields(token)
        user = said.get("username", "")
        uri, realm = said.get("digest-uri", ""), said.get("realm", "")
        right = (
            said.get("nonce") == self._nonce
            and said.get("nc") == _COUNT
            and said.get("qop", _QOP) == _QOP
            and realm in ("", REALM)
            and uri.startswith(URI)
            and said.get("authzid", user) == user
            and bool(said.get("cnonce"))
        )
        # An unknown user costs as much as a known one, so that timing does not tell them apart.
        password = self._users.get(user, self._nonce)
        secret = _secret(user, realm, password, self._nonce, said.get("cnonce", ""), said.get("authzid"))
        wanted = _response(secret, self._nonce, said.get("cnonce", ""), uri, "AUTHENTICATE")
        same = hmac.compare_digest(wanted.encode(), said.get("response", "").encode())
        if not (right and same and user in self._users):
            raise DigestError(f"user {user!r} has not proven a password")
        return f"rspauth={_response(secret, self._nonce, said['cnonce'], uri, '')}".encode()


class DigestClient:
    """The client's side of one handshake: call `answer`, then `check`."""

    def __init__(self, user: str, password: str, nonce: str, *, uri: str = URI) -> None:
        """`nonce`: a random text that was never used before."""
        self._uri = uri
        self._user = user
        self._password = password
        self._cnonce = nonce
        self._expected = ""

    def answer(self, challenge: bytes) -> bytes:
        """The proof for a server's challenge. Raises DigestError."""
        said = _fields(challenge)
        nonce, realm = said.get("nonce"), said.get("realm", "")
        offered = [each.strip() for each in said.get("qop", _QOP).split(",")]
        if not nonce or said.get("algorithm") != "md5-sess" or _QOP not in offered:
            raise DigestError("the challenge cannot be answered")
        uri = self._uri
        secret = _secret(self._user, realm, self._password, nonce, self._cnonce, None)
        self._expected = _response(secret, nonce, self._cnonce, uri, "")
        proof = _response(secret, nonce, self._cnonce, uri, "AUTHENTICATE")
        return (
            f'charset=utf-8,username="{_quoted(self._user)}",realm="{_quoted(realm)}",'
            f'nonce="{_quoted(nonce)}",nc={_COUNT},cnonce="{_quoted(self._cnonce)}",'
            f'digest-uri="{uri}",maxbuf=65536,response={proof},qop={_QOP}'
        ).encode()

    def check(self, token: bytes) -> None:
        """Raises DigestError unless the server has proven that it knows the password."""
        said = _fields(token).get("rspauth", "")
        if not self._expected or not hmac.compare_digest(said.encode(), self._expected.encode()):
            raise DigestError("the server does not know the password")


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _secret(user: str, realm: str, password: str, nonce: str, cnonce: str, authzid: str | None) -> str:
    """H(A1) of the RFC."""
    begin = _md5(b":".join(map(_octets, (user, realm, password))))
    end = f":{nonce}:{cnonce}" + (f":{authzid}" if authzid is not None else "")
    return _md5(begin + end.encode()).hex()


def _octets(text: str) -> bytes:
    """The bytes of a name or password that the RFC hashes: Latin-1 if that has all characters, else UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _response(secret: str, nonce: str, cnonce: str, uri: str, verb: str) -> str:
    action = _md5(f"{verb}:{uri}".encode()).hex()
    return _md5(f"{secret}:{nonce}:{_COUNT}:{cnonce}:{_QOP}:{action}".encode()).hex()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _fields(token: bytes) -> dict[str, str]:
    """Names and values in a message. Raises DigestError, also for a repeated name."""
    if len(token) > _TOKEN_BYTES_MAX:
        raise DigestError("the token is too long")
    try:
        text = token.decode()
    except UnicodeDecodeError as error:
        raise DigestError("the token is not a text") from error
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None or match[1].lower() in found:
            raise DigestError("the token is not a list of fields")
        quoted, plain = match[2], match[3]
        found[match[1].lower()] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return found
