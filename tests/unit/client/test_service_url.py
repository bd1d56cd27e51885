"""Addresses, credentials, tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.client.errors import RefusedError, RequestTimeoutError, UnreachableError
from magnetar.client.options import BadCredentialsError, ClientOptions
from magnetar.client.retry import Retry
from magnetar.client.service_url import BadUrlError, ServiceUrl
from magnetar.client.tls import tls_context
from magnetar.wire import pulsar_pb2 as pb
from support.certificates import Authority


@pytest.mark.parametrize(
    ("text", "expected", "admin"),
    [
        ("pulsar://broker", "pulsar://broker:6650", "http://broker:8080"),
        ("pulsar+ssl://broker:1", "pulsar+ssl://broker:1", "https://broker:8443"),
        ("http://broker", "http://broker:8080", "http://broker:8080"),
        ("pulsar://a:1,b:2", "pulsar://a:1", "http://a:8080"),  # the first of several
        ("pulsar://[::1]:7", "pulsar://[::1]:7", "http://[::1]:8080"),
    ],
)
def test_addresses(text: str, expected: str, admin: str) -> None:
    url = ServiceUrl.parse(text)
    assert str(url) == expected
    assert str(url.default_admin()) == admin


@pytest.mark.parametrize("text", ["", "broker:6650", "kafka://broker", "pulsar://", "pulsar://h:99999999"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadUrlError, match="not a service URL"):
        ServiceUrl.parse(text)


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    assert ClientOptions(token=f"file:{file}").credentials() == ("token", b"abc")
    assert ClientOptions(token=f"file://{file}").read_token() == "abc"
    assert ClientOptions().credentials() == (None, b"")
    assert "secret" not in repr(ClientOptions(token="secret"))
    with pytest.raises(BadCredentialsError, match="cannot read the token file"):
        ClientOptions(token=f"file:{tmp_path}/none").read_token()


def test_credentials() -> None:
    basic = ClientOptions(user="me", password="secret")
    assert (basic.credentials(), basic.authorization()) == (("basic", b"me:secret"), "Basic bWU6c2VjcmV0")
    assert "secret" not in repr(basic)
    certificate = ClientOptions(tls_certificate_file="me.pem")
    assert (certificate.credentials(), certificate.authorization()) == (("tls", b""), None)
    tokens = iter(("first", "second"))
    supplied = ClientOptions(token_supplier=lambda: next(tokens))
    assert supplied.authorization() == "Bearer first"
    assert supplied.credentials() == ("token", b"second")
    assert "second" not in repr(supplied)


def test_tls_contexts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("me")
    files = {"tls_trust_certs_file": str(authority.file), "tls_certificate_file": str(certificate)}
    context = tls_context(ClientOptions(**files, tls_key_file=str(key)))
    assert context.check_hostname
    assert not tls_context(ClientOptions(tls_validate_hostname=False)).check_hostname
    for bad in ({**files, "tls_key_file": str(authority.file)}, {"tls_trust_certs_file": f"{tmp_path}/none"}):
        with pytest.raises(BadCredentialsError, match="cannot be used"):
            tls_context(ClientOptions(**bad))


def test_what_is_tried_again() -> None:
    busy = RefusedError("producer", pb.ServerError.ProducerBusy, "taken")
    assert busy.retriable
    assert "ProducerBusy: taken" in str(busy)
    assert not RefusedError("producer", pb.ServerError.AuthorizationError, "no").retriable
    for error in (busy, UnreachableError("u", "d"), RequestTimeoutError("u", "w", 1)):
        with pytest.raises(type(error)):
            Retry(0).pause_or_raise(error)
    final = RefusedError("x", pb.ServerError.TopicNotFound, "none")
    with pytest.raises(RefusedError):
        Retry(100).pause_or_raise(final)
