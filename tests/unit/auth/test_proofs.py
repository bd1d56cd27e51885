"""Whether what an identity was proven by still counts: users, keys, tokens and trust that were taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey
from passlib.hash import apr_md5_crypt

from magnetar.auth.authentication import Authentication, TlsProvider
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import CertificateRole, Credentials, Identity, Proof, shown_role
from magnetar.auth.openid import KeyFetch, OpenIdProvider, TokenRules
from magnetar.auth.parts import authentication, parts
from magnetar.auth.renewal import Renewal
from magnetar.auth.settings import AuthSettings
from magnetar.auth.trust import fingerprints
from magnetar.base.errors import StartupError
from support.certificates import Authority

SECRET = b"0123456789abcdef0123456789abcdef"
NOW_MS = 1_700_000_000_000
ISSUER = "https://issuer.test"


def signed(secret: bytes, **claims: str) -> Credentials:
    token = jwt.encode({"alg": "HS256"}, {"sub": "me", **claims}, OctKey.import_key(secret))
    return Credentials("token", token.encode())


def known(made: Authentication, credentials: Credentials) -> Identity:
    answer = made.identify(credentials, NOW_MS)
    assert isinstance(answer, Identity)
    return answer


def by_token(folder: Path, secret: bytes = SECRET, revoked: str | bytes | None = None) -> Authentication:
    (folder / "key").write_bytes(secret)
    listed = None
    if revoked is not None:
        listed = folder / "revoked"
        listed.write_bytes(revoked if isinstance(revoked, bytes) else revoked.encode())
    settings = AuthSettings(methods=("token",), token_secret_key=folder / "key", revoked_tokens=listed)
    return authentication(settings)


def test_a_token_counts_until_its_key_is_another(tmp_path: Path) -> None:
    before = by_token(tmp_path)
    identity = known(before, signed(SECRET))
    assert before.counts(identity)
    assert by_token(tmp_path).counts(identity), "the same key in a new provider"
    assert not by_token(tmp_path, SECRET[::-1]).counts(identity)


def test_a_token_counts_until_its_id_is_revoked(tmp_path: Path) -> None:
    before = by_token(tmp_path)
    identity, nameless = known(before, signed(SECRET, jti="7 a")), known(before, signed(SECRET))
    after = by_token(tmp_path, revoked="# stolen\n\n 7 a \n")
    assert not after.counts(identity)
    assert after.counts(nameless)
    assert after.counts(known(after, signed(SECRET, jti="7")))
    with pytest.raises(AuthenticationError, match="revoked"):
        known(after, signed(SECRET, jti="7 a"))


def test_a_list_that_lets_tokens_in_again_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key").write_bytes(SECRET)
    listed = tmp_path / "revoked"
    listed.write_text("7 a\nstolen\n")
    settings = AuthSettings(methods=("token",), token_secret_key=tmp_path / "key", revoked_tokens=listed)
    (part,) = parts(settings)
    first = part.build(None)
    listed.write_text("7 a\nstolen\nanother\n")
    second = part.build(first)
    assert caplog.records == []
    listed.write_text("7 a\nstol")
    part.build(second)
    (record,) = caplog.records
    assert "has 2 ids of revoked tokens, 3 before: the removed tokens are valid again" in record.getMessage()


@pytest.mark.parametrize("listed", [b"\xff", b"x" * 2000])
def test_lists_of_revoked_tokens_that_are_none(tmp_path: Path, listed: bytes) -> None:
    with pytest.raises(StartupError):
        by_token(tmp_path, revoked=listed)


def test_a_proof_shows_no_secret(tmp_path: Path) -> None:
    hashed = apr_md5_crypt.hash("open sesame")
    (tmp_path / "users").write_text(f"ali:{hashed}\n")
    basic = authentication(AuthSettings(methods=("basic",), basic_users=tmp_path / "users"))
    for made, shown in (
        (basic, Credentials("basic", b"ali:open sesame")),
        (by_token(tmp_path), signed(SECRET, jti="7")),
    ):
        (proof,) = known(made, shown).proofs
        for secret in (hashed, "open sesame", shown.data.decode(), SECRET.decode()):
            assert secret not in proof.text


def test_a_user_counts_until_it_is_gone_or_has_another_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    settings = AuthSettings(methods=("basic",), basic_users=file)
    hashed = apr_md5_crypt.hash("open")
    file.write_text(f"ali:{hashed}\n")
    identity = known(authentication(settings), Credentials("basic", b"ali:open"))
    file.write_text(f"baba:{apr_md5_crypt.hash('x')}\nali:{hashed}\n")
    assert authentication(settings).counts(identity)
    file.write_text(f"ali:{apr_md5_crypt.hash('other')}\n")
    assert not authentication(settings).counts(identity)
    file.write_text(f"baba:{hashed}\n")
    assert not authentication(settings).counts(identity)


def test_a_certificate_counts_while_who_was_trusted_is(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files.append(Authority(tmp_path / name).file.read_bytes())
    old, both, new = (fingerprints(each) for each in (files[0], b"# a and b\n" + b"".join(files), files[1]))
    assert [len(each) for each in (old, both, new)] == [1, 2, 1]
    role = CertificateRole("me")
    role.trusted = old
    shown = Credentials("tls", b"", role)
    identity = TlsProvider(old).identify(shown, NOW_MS)
    for trusted, counts in ((old, True), (both, True), (new, False), (frozenset[str](), False)):
        provider = TlsProvider(trusted)
        assert provider.counts(identity.proofs[0].text) is counts
        if not counts:
            with pytest.raises(AuthenticationError, match="connect again"):
                provider.identify(shown, NOW_MS)


def test_the_role_shown_knows_who_was_trusted() -> None:
    class Context:
        trusted = frozenset({"x"})

    class Secured:
        context = Context()

    told = {"peercert": {"subject": ((("commonName", "me"),),)}, "ssl_object": Secured()}
    role = shown_role(told.get)
    assert role == "me"
    assert role.trusted == {"x"}
    assert shown_role({"ssl_object": Secured()}.get) is None


def test_every_proof_of_a_proxy_and_its_client_must_count(tmp_path: Path) -> None:
    made = by_token(tmp_path)
    (good,) = known(made, signed(SECRET)).proofs
    for proofs, counts in (((good, good), True), ((good, Proof("token", "key:x ")), False), ((), True)):
        assert made.counts(Identity("me", via="proxy", proofs=proofs)) is counts
    assert not made.counts(Identity("me", proofs=(Proof("basic", good.text),)))


def test_renewed_credentials_bring_a_new_proof() -> None:
    proxy, first, second = Proof("tls", "p"), Proof("token", "1"), Proof("token", "2")
    identity = Identity("me", 10, via="proxy", proofs=(first, proxy))
    renewal = Renewal(identity, Credentials("token"), client_renews=True)
    renewal.check(10)
    renewal.answered("token", b"x")
    renewal.proven(Identity("me", 20, proofs=(second,)))
    assert renewal.identity.proofs == (second, proxy)
    assert renewal.identity == replace(identity, expires_ms=20)


@pytest.mark.parametrize(("also", "same"), [(("b", "a"), True), (("a",), False), ((), False)])
def test_renewed_credentials_name_the_same_roles(also: tuple[str, ...], same: bool) -> None:
    """With fewer of them, what the connection has open may not be allowed any more."""
    renewal = Renewal(Identity("me", 10, also=("a", "b")), Credentials("token"), client_renews=True)
    renewal.check(10)
    renewal.answered("token", b"x")
    if same:
        renewal.proven(Identity("me", 20, also=also))
    else:
        with pytest.raises(AuthenticationError, match="same role"):
            renewal.proven(Identity("me", 20, also=also))


def test_an_issuers_key_counts_until_the_issuer_takes_it_back() -> None:
    keys = {name: ECKey.generate_key("P-256", {"kid": name}) for name in ("one 1", "two")}
    published = ["one 1"]

    def fetch(url: str) -> bytes:
        if url.endswith("openid-configuration"):
            return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()
        return json.dumps({"keys": [keys[name].as_dict(private=False) for name in published]}).encode()

    rules = TokenRules(audiences=["us"])

    def made(revoked: frozenset[str] = frozenset()) -> OpenIdProvider:
        return OpenIdProvider([ISSUER], rules, fetch=fetch, revoked=revoked)

    claims = {"sub": "me", "iss": ISSUER, "aud": "us", "exp": NOW_MS // 1000 + 60, "jti": "j j"}
    token = jwt.encode({"alg": "ES256", "kid": "one 1"}, claims, keys["one 1"])
    provider = made()

    def ask(now_ms: int) -> Identity | KeyFetch:
        answer = provider.identify(Credentials("token", token.encode()), now_ms)
        assert isinstance(answer, Identity | KeyFetch)
        return answer

    errand = ask(NOW_MS)
    assert isinstance(errand, KeyFetch)
    errand.run()
    identity = ask(NOW_MS)
    assert isinstance(identity, Identity)
    (proof,) = identity.proofs
    assert provider.counts(proof.text)
    assert not made(frozenset({"j j"})).counts(proof.text)

    after = made()
    after.keep_keys_of(provider)
    provider = after
    assert isinstance(ask(NOW_MS + 1), Identity), "what was fetched outlives the provider that fetched it"
    published[:] = ["two"]
    KeyFetch(ISSUER, provider._keys[ISSUER], fetch, NOW_MS, require_https=True).run()
    assert not provider.counts(proof.text)
    assert not OpenIdProvider(["https://b.test"], rules, fetch=fetch).counts(proof.text)
