"""Files of credentials that change while the process runs."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials
from magnetar.auth.token import new_token
from magnetar.base.errors import StartupError
from magnetar.observability.metrics import Exposition
from magnetar.runtime.broker_trust import broker_context
from magnetar.server.security.credential_files import BrokerCredentials
from magnetar.server.settings.config import StandaloneConfig
from support.certificates import Authority

OLD, NEW = b"o" * 32, b"n" * 32


def replaced(file: Path, content: bytes) -> None:
    """As Kubernetes and careful people do it."""
    beside = file.with_name("beside")
    beside.write_bytes(content)
    os.replace(beside, file)


def look(credentials: BrokerCredentials, **how: bool) -> list[str]:
    """What is stale after a look."""
    asyncio.run(credentials.files.look(**how))
    return [each.name for each in credentials.files.watched if each.stale]


def takes(credentials: BrokerCredentials, secret: bytes) -> bool:
    authentication = credentials.authentication
    assert authentication is not None
    token = new_token(secret, "me", now_s=1000, lasts_s=None)
    try:
        authentication.identify(Credentials("token", token.encode()), 1_000_000)
    except AuthenticationError:
        return False
    return True


def with_key(folder: Path) -> tuple[Path, BrokerCredentials]:
    """Tokens are signed with the old key, which lies there."""
    key = folder / "key"
    key.write_bytes(OLD)
    return key, BrokerCredentials(StandaloneConfig(authentication="token", token_secret_key=key))


def test_a_new_key_counts_and_a_broken_one_does_not(tmp_path: Path) -> None:
    key, credentials = with_key(tmp_path)
    changes: list[bool] = []
    credentials.files.changed = lambda: changes.append(True)
    assert look(credentials) == []
    assert not changes, "nothing changed, nothing is read"
    replaced(key, b"short")
    assert look(credentials) == ["token"]
    assert takes(credentials, OLD)
    exposition = Exposition()
    list(credentials.files.collect(exposition))
    assert 'magnetar_credentials_stale{credential="token"} 1' in exposition.render()
    key.unlink()
    assert look(credentials) == ["token"]
    replaced(key, NEW)
    assert look(credentials) == []
    assert (takes(credentials, OLD), takes(credentials, NEW), len(changes)) == (False, True, 1)
    assert look(credentials, always=True) == []
    assert len(changes) == 2, "who asks for it has everything read"


def test_what_could_not_be_read_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process without a free descriptor reads nothing, and the file looks the same afterwards."""
    key, credentials = with_key(tmp_path)
    replaced(key, NEW)
    with monkeypatch.context() as patched:

        def full(*_: object, **__: object) -> bytes:
            raise OSError(errno.EMFILE, "Too many open files")

        patched.setattr(Path, "read_bytes", full)
        patched.setattr("builtins.open", full)
        patched.setattr(Path, "open", full)
        assert look(credentials) == ["token"]
        assert look(credentials) == ["token"]
    assert sum("cannot be read again" in message for message in caplog.messages) == 1
    assert look(credentials) == []
    assert takes(credentials, NEW)


def test_what_is_written_while_it_is_read_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, credentials = with_key(tmp_path)
    token = credentials.files.watched[0]
    read = token.read

    def overtaken() -> Callable[[], None]:
        effect = read()
        replaced(key, NEW)
        return effect

    with monkeypatch.context() as patched:
        patched.setattr(token, "read", overtaken)
        assert look(credentials, always=True) == []
    assert takes(credentials, OLD)
    assert look(credentials) == []
    assert takes(credentials, NEW)


def test_a_look_that_began_earlier_does_not_bring_back_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two SIGHUPs, or one beside the regular look: the file changes between them, the first is slow."""
    key, credentials = with_key(tmp_path)
    token = credentials.files.watched[0]
    read, first_has_read, later_asked = token.read, threading.Event(), threading.Event()

    def slow() -> Callable[[], None]:
        effect = read()
        if not first_has_read.is_set():
            first_has_read.set()
            assert later_asked.wait(60)
        return effect

    monkeypatch.setattr(token, "read", slow)
    changes: list[bool] = []
    credentials.files.changed = lambda: changes.append(True)

    async def story() -> None:
        first = asyncio.ensure_future(credentials.files.look(always=True))
        await asyncio.to_thread(first_has_read.wait, 60)
        replaced(key, NEW)
        later = [asyncio.ensure_future(credentials.files.look(always=True)) for _ in range(100)]
        # Without turns these would end here, before the first.
        await asyncio.wait(later, timeout=0.1)
        later_asked.set()
        await asyncio.gather(first, *later)

    asyncio.run(story())
    assert (takes(credentials, OLD), takes(credentials, NEW)) == (False, True)
    assert len(changes) == 2, "those who ask while one waits share it"


def test_what_is_broken_at_the_start_starts_nothing(tmp_path: Path) -> None:
    key = tmp_path / "key"
    with pytest.raises(StartupError, match="cannot be read"):
        BrokerCredentials(StandaloneConfig(authentication="token", token_secret_key=key))


def test_one_broken_file_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, private = authority.issue("localhost")
    key = tmp_path / "key"
    key.write_bytes(OLD)
    files: dict[str, Any] = {"tls_certificate": certificate, "tls_key": private, "tls_ca": authority.file}
    credentials = BrokerCredentials(
        StandaloneConfig(authentication="token,tls", token_secret_key=key, **files)
    )
    assert credentials.tls is not None
    served, before = credentials.tls, credentials.tls.current
    replaced(private, b"no key")
    replaced(key, NEW)
    assert look(credentials) == ["serving tls"]
    assert served.current is before
    assert takes(credentials, NEW)
    authority.issue("localhost")
    assert look(credentials) == []
    assert credentials.tls is served, "listeners hold it for ever"
    assert served.current is not before


def test_trust_in_brokers_is_read_again_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "brokers.pem"
    file.write_bytes(Authority(tmp_path).file.read_bytes())
    credentials = BrokerCredentials(StandaloneConfig(broker_tls_ca=file))
    before = broker_context(str(file))
    assert len(before.get_ca_certs()) == 1
    replaced(file, b"no certificate")
    assert look(credentials) == ["trust in brokers"]
    assert broker_context(str(file)) is before
    other = tmp_path / "other"
    other.mkdir()
    replaced(file, Authority(other).file.read_bytes())
    assert look(credentials) == []
    assert broker_context(str(file)).get_ca_certs() != before.get_ca_certs()


def test_trust_in_brokers_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="check broker_tls_ca"):
        BrokerCredentials(StandaloneConfig(broker_tls_ca=tmp_path / "missing.pem"))


def test_nothing_is_watched_where_nothing_is_asked() -> None:
    credentials = BrokerCredentials(StandaloneConfig())
    assert (credentials.tls, credentials.authentication, credentials.files.watched) == (None, None, [])


def test_secrets_that_everybody_may_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = tmp_path / "key"
    key.write_bytes(OLD)
    for rights, told in ((0o600, False), (0o640, False), (0o644, True)):
        caplog.clear()
        key.chmod(rights)
        BrokerCredentials(StandaloneConfig(authentication="token", token_secret_key=key))
        assert (f"chmod o-r {key}" in caplog.text) is told
