"""What the HTTP port of the proxy passes on."""

from __future__ import annotations

import pytest

from magnetar.proxy.http_rules import is_passed_on, redirected, to_broker, to_client, url_at

GIVEN = [
    ("host", "proxy"),
    ("authorization", "Bearer mine"),
    ("content-type", "application/json"),
    ("x-original-principal", "admin"),
    ("x-forwarded-for", "1.2.3.4"),
    ("connection", "x-secret"),
    ("transfer-encoding", "chunked"),
    ("content-length", "7"),
    ("cookie", "c"),
]
BROKERS = ("http://a:8080", "http://b:8080")


def test_without_authentication_the_broker_gets_the_clients_credentials() -> None:
    assert to_broker(GIVEN, role=None, own=None) == {
        "authorization": "Bearer mine",
        "content-type": "application/json",
    }


def test_with_authentication_it_gets_the_proxys_and_the_proven_role() -> None:
    assert to_broker(GIVEN, role="alice", own="Bearer proxy") == {
        "content-type": "application/json",
        "x-original-principal": "alice",
        "authorization": "Bearer proxy",
    }


def test_without_credentials_of_its_own_the_proxy_passes_on_none() -> None:
    # It shows a certificate: the broker must not take the client's token for the proxy's.
    assert "authorization" not in to_broker(GIVEN, role="alice", own=None)


def test_headers_of_one_hop_end_at_the_proxy() -> None:
    given = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked"), ("Location", "http://a")]
    assert to_client(given) == [(b"content-type", b"text/plain")]


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("http://b:8080/admin/v2/x?authoritative=true", True),
        ("http://B:8080/lookup/v2/x", True),
        ("http://b:8081/admin/v2/x", False),
        ("https://b:8080/admin/v2/x", False),
        ("http://evil/admin/v2/x", False),
        ("http://b:8080@evil/admin/v2/x", False),
        ("http://user@b:8080/admin/v2/x", False),
        ("http://b:8080/metrics", False),
        ("/admin/v2/x", False),
        ("http://[b:8080/admin/v2/x", False),
        ("", False),
    ],
)
def test_redirects_lead_to_brokers_alone(location: str, found: bool) -> None:
    assert (redirected(location, BROKERS) is not None) is found


@pytest.mark.parametrize(
    "target",
    [
        b"%2fadmin%2f@evil:80/x",
        b"%2Fadmin/",
        b".evil.example/admin/",
        b"@evil/admin/",
        b":80@evil/admin/",
        b"http://evil/admin/",
        b"",
    ],
)
@pytest.mark.parametrize("broker", ["http://a", "http://a:8080"])
def test_no_call_names_the_machine_that_gets_it(broker: str, target: bytes) -> None:
    assert url_at(broker, target, b"") is None


def test_a_call_is_the_same_at_the_broker() -> None:
    assert url_at("http://a:8080", b"/admin/v2/t%2fn", b"a=%0a&b") == "http://a:8080/admin/v2/t%2fn?a=%0a&b"
    assert url_at("http://a:8080", b"//evil/admin/", b"") == "http://a:8080//evil/admin/"
    assert url_at("http://[::1]:8080", b"/admin/@evil", b"@evil") == "http://[::1]:8080/admin/@evil?@evil"


@pytest.mark.parametrize(
    ("path", "passed"),
    [("/admin/v2/tenants", True), ("/lookup/v2/x", True), ("/metrics", False), ("//admin/", False)],
)
def test_paths(path: str, passed: bool) -> None:
    assert is_passed_on(path) is passed
