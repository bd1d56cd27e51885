"""What bookies are shown by the broker's client, and how that changes while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from magnetar.server.bookies.ledger_access import LedgerCredentials, client_options
from magnetar.server.settings.ledger_settings import LedgerSettings
from support.certificates import Authority


def test_what_bookies_are_shown_changes_with_its_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    password = tmp_path / "password"
    password.write_text("old\n")
    settings = LedgerSettings(
        bookie_tls=True,
        bookie_tls_ca=authority.file,
        bookie_tls_certificate=certificate,
        bookie_tls_key=key,
        bookie_user="broker",
        bookie_password=password,
    )

    async def story() -> None:
        credentials = LedgerCredentials(settings)
        options = client_options(settings, credentials=credentials)
        assert options.tls is credentials.tls is not None
        assert options.user is not None
        before = credentials.tls.current
        await credentials.files.look()
        assert credentials.tls.current is before
        later = tmp_path / "later"
        later.write_text("new")
        os.replace(later, password)
        fresh_certificate, fresh_key = authority.issue("later")
        os.replace(fresh_key, key)
        os.replace(fresh_certificate, certificate)
        await credentials.files.look()
        # The same objects, which the client's options hold.
        assert options.user.password == "new"
        assert options.tls is credentials.tls
        assert credentials.tls.current is not before
        password.unlink()
        with caplog.at_level(logging.ERROR):
            await credentials.files.look()
        assert options.user.password == "new", "a file that is gone leaves what was there"
        assert "password for bookies cannot be read again" in caplog.text
        assert "new" not in repr(options.user)

    asyncio.run(story())


def test_without_settings_there_is_nothing_to_show() -> None:
    credentials = LedgerCredentials(LedgerSettings())
    assert (credentials.tls, credentials.user, list(credentials.files.watched)) == (None, None, [])
