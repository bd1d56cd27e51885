"""Which credentials are taken, and for which role."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from magnetar.auth.authentication import Authentication
from magnetar.auth.basic import BasicProvider
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity, certificate_role
from magnetar.auth.parts import authentication
from magnetar.auth.settings import AuthSettings
from magnetar.base.errors import StartupError

SECRET = b"0123456789abcdef0123456789abcdef"
NOW_S = 1_700_000_000
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def by_token(tmp_path: Path, *, public: bytes | None = None, **more: Any) -> Authentication:
    file = tmp_path / "key"
    file.write_bytes(SECRET if public is None else public)
    which = {"token_secret_key" if public is None else "token_public_key": file}
    return authentication(AuthSettings(methods=("token",), **which, **more))  # type: ignore[arg-type]  # keywords


def signed(key: Any, algorithm: str, **claims: Any) -> str:
    return jwt.encode({"alg": algorithm}, claims, key)


def ask(chain: Authentication, method: str, data: str | bytes = b"", **more: Any) -> Any:
    data = data.encode() if isinstance(data, str) else data
    return chain.identify(Credentials(method, data, **more), NOW_S * 1000)


def test_hmac_tokens_name_the_role(tmp_path: Path) -> None:
    token = signed(OctKey.import_key(SECRET), "HS256", sub="me")
    assert ask(by_token(tmp_path), "token", token) == Identity("me")


@pytest.mark.parametrize(
    ("key", "imported", "algorithm"), [(RSA, RSAKey, "RS256"), (EC, ECKey, "ES256")], ids=["rsa", "ec"]
)
def test_tokens_of_public_keys(tmp_path: Path, key: Any, imported: Any, algorithm: str) -> None:
    token = signed(imported.import_key(private_pem(key)), algorithm, sub="me")
    assert ask(by_token(tmp_path, public=public_pem(key)), "token", token).role == "me"
    der = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert ask(by_token(tmp_path, public=der), "token", token).role == "me"


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """A token put together by hand."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims)]
    signature = hmac.new(secret, b".".join(parts), hashlib.sha256).digest()
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def test_a_public_key_is_no_hmac_secret(tmp_path: Path) -> None:
    chain = by_token(tmp_path, public=public_pem(RSA))
    for secret in (public_pem(RSA), public_pem(RSA).strip()):
        with pytest.raises(AuthenticationError):
            ask(chain, "token", forged({"alg": "HS256"}, {"sub": "me"}, secret))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        forged({"alg": "none"}, {"sub": "me"}, b""),
        forged({"alg": "none"}, {"sub": "me"}, b"").rpartition(".")[0] + ".",
        forged({"alg": "HS256"}, {"sub": "me"}, b"another secret"),
        forged({"alg": "HS256", "crit": ["x"], "x": 1}, {"sub": "me"}, SECRET),
        forged({"alg": "HS256"}, {"sub": ""}, SECRET),
        forged({"alg": "HS256"}, {"sub": 7}, SECRET),
        forged({"alg": "HS256"}, {}, SECRET),
        forged({"alg": "HS256"}, {"sub": "me", "exp": NOW_S - 61}, SECRET),
        forged({"alg": "HS256"}, {"sub": "me", "exp": "never"}, SECRET),
        forged({"alg": "HS256"}, {"sub": "me", "nbf": NOW_S + 120}, SECRET),
        "x" * 20_000,
        forged({"alg": "HS256"}, {"sub": "me", "more": "x" * 16_000}, SECRET),
        ".".join((base64.urlsafe_b64encode(b"[" * 9_000).decode(), "e30", "x")),
        forged({"alg": "HS256"}, {"sub": "me", "exp": 1e308}, SECRET),
        forged({"alg": "HS256"}, {"sub": "me", "exp": float("nan")}, SECRET),
        forged({"alg": "HS512"}, {"sub": "me"}, SECRET),
        forged({"alg": "RS256"}, {"sub": "me"}, SECRET),
        forged({"alg": "ES256"}, {"sub": "me"}, SECRET),
        forged({"alg": ["HS256"]}, {"sub": "me"}, SECRET),
        forged({"alg": "HS256", "jwk": {"kty": "oct", "k": "eA"}}, {"sub": "me"}, b"x"),
        forged({"alg": "HS256", "b64": False}, {"sub": "me"}, SECRET),
        "a.b.c.d.e",
    ],
)
def test_tokens_that_are_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        ask(by_token(tmp_path), "token", token)
    assert len(token) < 2 or token not in str(caught.value)


def test_all_roles_of_a_list_count_where_that_is_asked_for(tmp_path: Path) -> None:
    chain = by_token(tmp_path, several_roles=True, token_role_claim="roles")
    for roles, first, others in (
        ("me", "me", ()),
        (["me"], "me", ()),
        (["me", "you", "me", "you", "all"], "me", ("you", "all")),
    ):
        found = ask(chain, "token", forged({"alg": "HS256"}, {"roles": roles}, SECRET))
        assert (found.role, found.also) == (first, others)
    for wrong in ([], ["me", 7], ["me", ""], ["me", ["you"]], [7, "me"], ["x"] * 101):
        with pytest.raises(AuthenticationError):
            ask(chain, "token", forged({"alg": "HS256"}, {"roles": wrong}, SECRET))
    first = by_token(tmp_path, token_role_claim="roles")
    assert ask(first, "token", forged({"alg": "HS256"}, {"roles": ["me", "you"]}, SECRET)) == Identity("me")


def test_expiry_audience_and_role_claim(tmp_path: Path) -> None:
    key = OctKey.import_key(SECRET)
    token = signed(key, "HS256", sub="me", exp=NOW_S + 10)
    assert ask(by_token(tmp_path), "token", token).expires_ms == (NOW_S + 70) * 1000
    chain = by_token(tmp_path, token_audience="us", token_role_claim="role")
    assert ask(chain, "token", signed(key, "HS256", role="me", aud=["us", "them"])).role == "me"
    for claims in ({"role": "me"}, {"role": "me", "aud": "them"}, {"sub": "me", "aud": "us"}):
        with pytest.raises(AuthenticationError):
            ask(chain, "token", signed(key, "HS256", **claims))


def by_password(tmp_path: Path, text: str) -> Authentication:
    file = tmp_path / "users"
    file.write_text(text)
    return authentication(AuthSettings(methods=("basic",), basic_users=file))


def hashes() -> str:
    from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1

    return "\n".join(
        [
            "# users",
            f"apr:{apr_md5_crypt.hash('123456')}",
            f"blow:{bcrypt.using(rounds=4).hash('123456')}",
            f"sha:{ldap_sha1.hash('123456')}",
            "",
        ]
    )


def test_passwords(tmp_path: Path) -> None:
    chain = by_password(tmp_path, hashes())
    for user in ("apr", "blow", "sha"):
        assert ask(chain, "basic", f"{user}:123456") == Identity(user)
        for wrong in (f"{user}:12345", f"{user}:", user, f"{user}:123456\0", f"{user}:{'x' * 200}"):
            with pytest.raises(AuthenticationError, match="user or password is wrong"):
                ask(chain, "basic", wrong)
    for wrong in ("nobody:123456", "", ":", "x" * 5000):
        with pytest.raises(AuthenticationError, match="user or password is wrong"):
            ask(chain, "basic", wrong)


def test_who_is_not_there_is_checked_as_somebody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = BasicProvider("carl:$apr1$abcdefgh$Y5GGzO6FrmyUkzoHY.Cj..")
    checked = []
    monkeypatch.setattr(
        provider._context, "verify", lambda password, hashed: checked.append(hashed) or password == "right"
    )
    for credentials in (b"carl:wrong", b"nobody:wrong", b"nobody:right", b"carl"):
        with pytest.raises(AuthenticationError, match="user or password is wrong"):
            provider.identify(Credentials("basic", credentials), 0)
    assert len(checked) == 4
    assert len(set(checked)) == 1
    with pytest.raises(AuthenticationError, match="user or password is wrong"):
        provider.identify(Credentials("basic", b"carl:" + b"x" * 5_000), 0)
    assert len(checked) == 4, "a check costs more with each byte: what is too long is not checked"
    assert provider.identify(Credentials("basic", b"carl:right"), 0).role == "carl"


def test_certificates() -> None:
    chain = authentication(AuthSettings(methods=("tls",), anonymous_role="anonymous"))
    assert ask(chain, "tls", certificate_role="admin").role == "admin"
    with pytest.raises(AuthenticationError):
        ask(chain, "tls")
    subject = ((("countryName", "X"),), (("commonName", "admin"),))
    assert certificate_role({"subject": subject}) == "admin"
    assert certificate_role({"subject": (*subject, (("commonName", "root"),))}) is None
    assert certificate_role(None) is None


def test_a_client_without_known_credentials_is_anonymous_or_refused() -> None:
    open_chain = authentication(AuthSettings(methods=("tls",), anonymous_role="anonymous"))
    for method in ("", "none", "unknown"):
        assert ask(open_chain, method).role == "anonymous"
    closed = authentication(AuthSettings(methods=("tls",)))
    with pytest.raises(AuthenticationError, match="credentials are needed; offered are: tls"):
        ask(closed, "none")
    with pytest.raises(AuthenticationError, match="'unknown' is not offered"):
        ask(closed, "unknown")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"methods": ("magic",)}, "'magic' is unknown; known are tls, token, basic, openid"),
        ({"methods": ("token",)}, "needs either token_secret_key or token_public_key"),
        ({"methods": ("token",), "token_secret_key": Path("missing")}, "missing cannot be read"),
        ({"methods": ("token",), "token_secret_key": Path("short")}, "at least 32 bytes, not 5"),
        ({"methods": ("token",), "token_public_key": Path("short")}, "not a public key in PEM or DER"),
        ({"methods": ("basic",)}, "needs basic_users"),
        ({"methods": ("basic",), "basic_users": Path("short")}, "line 1 is not user:hash"),
    ],
)
def test_what_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], text: str
) -> None:
    (tmp_path / "short").write_text("short")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match=text):
        authentication(AuthSettings(**settings))


def test_credentials_are_not_shown() -> None:
    assert "hunter2" not in repr(Credentials("basic", b"me:hunter2"))
