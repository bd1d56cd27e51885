"""A token issuer on this machine: discovery, keys, and tokens for client credentials."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from support.http_threads import HttpThread

AUDIENCE = "urn:magnetar:test"
CLIENT_ID = "orders-service"
CLIENT_SECRET = "a long secret of the client"


class IssuerKeyRing:
    """Keys and tokens of an issuer, without a server."""

    def __init__(self, url: str = "https://issuer.test") -> None:
        self.url = url
        self.keys: list[RSAKey | ECKey] = []
        self.requests: list[str] = []
        """Paths that were asked for."""
        self.down = False
        self.rotate()

    def rotate(self, *, keep: bool = False, kind: str = "EC") -> None:
        """Signs with a new key from now on; the old ones are published no more unless `keep`."""
        key_id = f"key-{time.monotonic_ns()}"
        key: RSAKey | ECKey
        if kind == "RSA":
            key = RSAKey.generate_key(2048, {"kid": key_id})
        else:
            key = ECKey.generate_key("P-256", {"kid": key_id})
        self.keys = [key, *(self.keys if keep else [])]

    def token(self, *, header: dict[str, Any] | None = None, **claims: Any) -> bytes:
        """A token for `me`; `claims` add to it or, when None, take away."""
        key = self.keys[0]
        algorithm = "ES256" if isinstance(key, ECKey) else "RS256"
        all_claims = {"iss": self.url, "sub": "me", "aud": AUDIENCE, "exp": 2_000_000_000, **claims}
        said = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.encode({"alg": algorithm, "kid": key.kid, **(header or {})}, said, key).encode()

    def document(self, path: str) -> Any:
        """What stands at a path. Raises KeyError."""
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "token_endpoint": f"{self.url}/token",
            },
            "/keys": {"keys": [{**key.as_dict(private=False), "use": "sig"} for key in self.keys]},
        }[path]

    def fetch(self, url: str) -> bytes:
        """As a client of the issuer fetches a document."""
        path = url.removeprefix(self.url)
        self.requests.append(path)
        if self.down:
            raise OSError("the issuer is down")
        return json.dumps(self.document(path)).encode()


class LocalIssuer(IssuerKeyRing):
    """The same, served on a free port of this machine."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, lifetime_s: Callable[[], float]) -> None:
        """`lifetime_s`: of the tokens that clients get."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/moved":
                    self.send_response(302)
                    self.send_header("Location", issuer.moved)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                try:
                    self.answer(200, json.loads(issuer.fetch(issuer.url + self.path)))
                except KeyError:
                    self.answer(404, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self.answer(*issuer.grant(form))

            def answer(self, status: int, document: Any) -> None:
                data = json.dumps(document).encode() + b" " * issuer.padding
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._http = HttpThread(Handler, tls)
        scheme = "http" if tls is None else "https"
        super().__init__(f"{scheme}://localhost:{self._http.port}")
        self.grants: list[dict[str, str]] = []
        """The forms of all requests for a token."""
        self.moved = ""
        """Where `/moved` leads."""
        self.padding = 0
        """Bytes of nothing at the end of each document."""
        self._lifetime_s = lifetime_s

    def grant(self, form: dict[str, str]) -> tuple[int, Any]:
        """Answers a request for a token with client credentials: status and document."""
        self.grants.append(form)
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        lifetime_s = self._lifetime_s()
        end = time.time() + lifetime_s
        token = self.token(sub=CLIENT_ID, aud=form.get("audience", AUDIENCE), exp=end)
        return 200, {"access_token": token.decode(), "token_type": "Bearer", "expires_in": int(lifetime_s)}

    def __enter__(self) -> LocalIssuer:
        self._http.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.__exit__(kind, error, trace)
