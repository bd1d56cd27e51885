"""What the audit tells of a change."""

from __future__ import annotations

import pytest

from magnetar.admin.access.changes import told_of_change
from magnetar.base.redaction import REMOVED

N = "/admin/v2/namespaces/public/default"
C = "/admin/v2/brokers/configuration"


@pytest.mark.parametrize(
    ("path", "query", "body", "told"),
    [
        (N, "", b"", N),
        (f"{N}/messageTTL", "", b"7", f"{N}/messageTTL 7"),
        (N, "force=true", b"", f"{N}?force=true"),
        (N, "", b'{"a": {"s3Secret": "x"}, "b": 1}', f'{N} {{"a":{{"s3Secret":"{REMOVED}"}},"b":1}}'),
        (N, "password=x&a=b", b"", f"{N}?password={REMOVED}"),
        (N, "", b"\xff\xfe", f"{N} (2 bytes, not JSON)"),
        (N, "", b'"\\u001b\\n"', f'{N} "\\u001b\\n"'),
        (f"{C}/ttl/7", "", b"", f"{C}/ttl/7"),
        (
            f"{C}/brokerClientAuthenticationParameters/x",
            "",
            b"",
            f"{C}/brokerClientAuthenticationParameters/{REMOVED}",
        ),
    ],
)
def test_what_changed_is_told_without_secrets(path: str, query: str, body: bytes, told: str) -> None:
    assert told_of_change("POST", path, query, body) == f"POST {told}"


@pytest.mark.parametrize("body", [b'"' + b"x" * 60_000 + b'"', b"[" * 50_000, b"x" * 5_000_000])
def test_what_is_long_is_cut(body: bytes) -> None:
    told = told_of_change("POST", "/" + "p" * 50_000, "q" * 50_000, body)
    assert len(told) < 3_000
    assert f"({len(body)} bytes" in told
