"""A real OpenID Connect issuer: `oidc-provider`, fetched by npm on first use and checked against the hashes
of its lock file, and the ways to a token that a person or a program goes."""

from __future__ import annotations

import base64
import hashlib
import http.cookiejar
import json
import os
import re
import secrets
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from support.drivers import NotHereError
from support.java_client import cache_home

HERE = Path(__file__).parents[1] / "compat" / "openid"
FETCH_DEADLINE_S = 300
DEADLINE_S = 60
PROGRAM, CLIENT = ("orders", "orders-secret"), ("web", "web-secret")
"""Clients and their secrets: one for itself, one for people."""
_BACK = "http://127.0.0.1:9/callback"
_STEPS_MAX = 20


def _installed() -> Path:
    """The folder to run it in. Raises NotHereError."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotHereError("node and npm are not installed")
    version = subprocess.run(
        [node, "--version"], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    if int(version.stdout.lstrip("v").partition(".")[0]) < 20:
        raise NotHereError(f"node is {version.stdout.strip()}; it must be 20 or newer")
    state = hashlib.sha256(b"".join(each.read_bytes() for each in sorted(HERE.iterdir())))
    target = cache_home() / f"openid-issuer-{state.hexdigest()[:12]}"
    if target.exists():
        return target
    # Under a name of its own first: another run may be doing the same.
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copytree(HERE, unfinished)
    try:
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(
            command, cwd=unfinished, capture_output=True, text=True, timeout=FETCH_DEADLINE_S, check=False
        )
        if done.returncode:
            raise NotHereError(f"its packages cannot be fetched: {done.stderr.strip()[-200:]}")
        if not target.exists():
            unfinished.replace(target)
    except subprocess.TimeoutExpired:
        raise NotHereError(f"its packages were not fetched within {FETCH_DEADLINE_S} s") from None
    except OSError:
        # Another run was faster between the two lines above.
        if not target.exists():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


class OpenIdServer:
    """The issuer, on a free port, until it is left."""

    def __init__(self, audience: str) -> None:
        """Raises NotHereError."""
        self.audience = audience
        self._process = subprocess.Popen(
            ["node", "issuer.mjs", audience],
            cwd=_installed(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = self._said()
        self.endpoints: dict[str, Any] = json.loads(_fetched(f"{self.url}/.well-known/openid-configuration"))

    def __enter__(self) -> OpenIdServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, command: str) -> None:
        """`rotate` or `drop`: see issuer.mjs."""
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)
        assert self._said() == command

    def _said(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The server also prints other lines, such as warnings against its use in production.
            if line.startswith("> "):
                return line[2:].strip()
        raise AssertionError("the issuer has ended")

    # -- the ways to a token -----------------------------------------------------------------------

    def by_credentials(self, **more: str) -> str:
        """An access token of the program itself."""
        return self._token(PROGRAM, grant_type="client_credentials", **more)

    def by_code(self, user: str) -> tuple[str, str]:
        """The access token and the ID token of a user after a login and consent in a browser."""
        verifier = secrets.token_urlsafe(32)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "client_id": CLIENT[0],
            "response_type": "code",
            "redirect_uri": _BACK,
            "scope": "openid",
            "state": "s",
            "resource": self.audience,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        code = _browsed(f"{self.endpoints['authorization_endpoint']}?{urlencode(asked)}", user)
        more = {"code": code, "redirect_uri": _BACK, "code_verifier": verifier}
        answer = self._answer(CLIENT, grant_type="authorization_code", **more)
        return str(answer["access_token"]), str(answer["id_token"])

    def _token(self, client: tuple[str, str], **fields: str) -> str:
        return str(self._answer(client, **fields)["access_token"])

    def _answer(self, client: tuple[str, str], **fields: str) -> dict[str, Any]:
        form = {"client_id": client[0], "client_secret": client[1], **fields}
        found: dict[str, Any] = json.loads(
            _fetched(self.endpoints["token_endpoint"], urlencode(form).encode())
        )
        return found


def _fetched(url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data, timeout=DEADLINE_S) as answer:
        return bytes(answer.read())


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Redirects are looked at before they are followed."""


def _browsed(url: str, user: str) -> str:
    """Logs in and agrees to everything; the code with which the browser is sent back."""
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(cookies, _Stay())
    data: bytes | None = None
    for _ in range(_STEPS_MAX):
        where, page = _step(browser.open, url, data)
        data = None
        if where:
            url = urljoin(url, where)
            if url.startswith(_BACK):
                return parse_qs(urlsplit(url).query)["code"][0]
            continue
        action, prompt = re.search(r'action="([^"]+)"', page), re.search(r'name="prompt" value="(\w+)"', page)
        assert action is not None, page
        assert prompt is not None, page
        url = urljoin(url, action[1])
        data = urlencode({"prompt": prompt[1], "login": user, "password": "any"}).encode()
    raise AssertionError("the issuer asks without end")


def _step(open_url: Callable[..., Any], url: str, data: bytes | None) -> tuple[str, str]:
    """Where the browser is sent, or the page that it gets."""
    try:
        with open_url(url, data, timeout=DEADLINE_S) as answer:
            return "", answer.read().decode()
    except HTTPError as error:
        if error.code // 100 != 3:
            raise AssertionError(f"{error.code}: {error.read()[:500]!r}") from error
        return str(error.headers["Location"]), ""
