"""What an HTTP request shows: a header that cannot be read is refused, and never passed over."""

from __future__ import annotations

import pytest

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import METHOD_TLS, Credentials


@pytest.mark.parametrize("header", ["Negotiate x", "Digest x", "x", "Basic ???"])
def test_a_scheme_that_is_not_offered_is_not_replaced_by_a_certificate(header: str) -> None:
    with pytest.raises(AuthenticationError):
        credentials_of(header, "", certificate_role="root", takes_certificates=True)


def test_a_certificate_counts_alone_and_where_it_is_offered() -> None:
    assert credentials_of("", "", certificate_role="root", takes_certificates=True) == Credentials(
        METHOD_TLS, b"", "root"
    )
    assert credentials_of("", "", certificate_role="root", takes_certificates=False) == Credentials("")
    assert credentials_of("Bearer t", "", certificate_role="root", takes_certificates=True).data == b"t"
