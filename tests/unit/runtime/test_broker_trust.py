"""Trust in the certificates of brokers."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from magnetar.runtime.broker_trust import broker_context, new_context, use_context
from support.certificates import Authority


def test_a_file_is_read_once_until_another_context_is_used(tmp_path: Path) -> None:
    file = str(Authority(tmp_path).file)
    first = broker_context(file)
    assert (len(first.get_ca_certs()), first.verify_mode) == (1, ssl.CERT_REQUIRED)
    assert first.check_hostname
    assert broker_context(file) is first
    renewed = new_context(file)
    assert broker_context(file) is first
    use_context(file, renewed)
    assert broker_context(file) is renewed


def test_without_a_file_the_system_says_whom_to_trust() -> None:
    assert broker_context("").check_hostname


def test_a_file_without_certificates_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "none.pem"
    file.write_text("nothing")
    with pytest.raises(OSError, match=r"certificate|PEM"):
        broker_context(str(file))
