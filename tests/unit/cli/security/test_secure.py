"""`magnetar secure init`: files that fit together, made once."""

from __future__ import annotations

import ssl
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.auth.authority import names_of
from magnetar.auth.identity import METHOD_TOKEN, Credentials
from magnetar.auth.parts import authentication
from magnetar.auth.token import TokenProvider, secret_key
from magnetar.cli.contexts.contexts import load
from magnetar.server.security.security import auth_settings, tls_context
from magnetar.server.settings.loading import load as load_settings

Run = Callable[..., Any]


def images(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_fits_together(magnetar: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    ended = magnetar("secure", "init", folder, "--host", "broker.example.com", "--role", "orders")
    assert ended.code == 0, ended.err
    config = load_settings({}, file=folder / "secure.toml", environment={}).config
    assert tls_context(config) is not None
    assert authentication(auth_settings(config)).providers
    assert config.superuser_roles == "admin"
    provider = TokenProvider(secret_key((folder / "token-secret.key").read_bytes()))
    for role in ("admin", "orders"):
        token = (folder / "tokens" / f"{role}.token").read_bytes().strip()
        assert provider.identify(Credentials(METHOD_TOKEN, token), 1).role == role
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "clients" / f"{role}.pem", folder / "clients" / f"{role}.key")
    names = names_of((folder / "broker.pem").read_bytes())
    assert {"broker.example.com", "localhost", "127.0.0.1", "::1"} <= names
    assert "grant public/default orders" in ended.out


def test_only_the_owner_may_read(magnetar: Run, tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    magnetar("secure", "init", folder)
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_trial_makes_nothing(magnetar: Run, tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    ended = magnetar("secure", "init", folder, "--dry-run")
    would = [Path(line.split(maxsplit=2)[2]).name for line in ended.out.splitlines()]
    assert ended.code == 0
    assert not folder.exists()
    magnetar("secure", "init", folder)
    assert sorted(would) == sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_is_there_stays(magnetar: Run, tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    magnetar("secure", "init", folder)
    before = images(folder)
    assert magnetar("secure", "init", folder).code == 0
    assert images(folder) == before
    (folder / "secure.toml").write_text("host = 'mine'\n")
    before = images(folder)
    ended = magnetar("secure", "init", folder, "--role", "orders", "--listen", "0.0.0.0")
    after = images(folder)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"tokens/orders.token", "clients/orders.pem", "clients/orders.key"}
    assert "other settings" in ended.out


def test_what_was_cut_short_is_finished(magnetar: Run, tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    magnetar("secure", "init", folder)
    key = (folder / "broker.key").read_bytes()
    (folder / "broker.pem").unlink()
    assert magnetar("secure", "init", folder).code == 0
    assert (folder / "broker.key").read_bytes() == key
    config = load_settings({}, file=folder / "secure.toml", environment={}).config
    assert tls_context(config) is not None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "ca.key").unlink(), "ca.key does not"),
        (lambda folder: (folder / "broker.pem").write_text("?"), "not a certificate"),
    ],
)
def test_what_does_not_fit_is_refused(
    magnetar: Run, tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    folder = tmp_path / "secure"
    magnetar("secure", "init", folder)
    spoil(folder)
    before = images(folder)
    ended = magnetar("secure", "init", folder, "--role", "more")
    assert (ended.code, said in ended.err) == (1, True), ended.err
    assert images(folder) == before


def test_a_host_that_the_certificate_does_not_name(magnetar: Run, tmp_path: Path) -> None:
    magnetar("secure", "init", tmp_path / "s", "--host", "one.example.com")
    assert magnetar("secure", "init", tmp_path / "s").code == 0
    ended = magnetar("secure", "init", tmp_path / "s", "--host", "two.example.com")
    assert (ended.code, "two.example.com" in ended.err) == (1, True)


@pytest.mark.parametrize("role", ["../x", "a/b", "", ".x", "a b"])
def test_roles_are_names_of_files(magnetar: Run, tmp_path: Path, role: str) -> None:
    for option in ("--role", "--admin"):
        assert magnetar("secure", "init", tmp_path / "s", option, role).code == 2
    assert not (tmp_path / "s").exists()


def test_other_machines_reach_tls_only(magnetar: Run, tmp_path: Path) -> None:
    magnetar("secure", "init", tmp_path / "s", "--listen", "0.0.0.0", "--host", "broker.example.com")
    settings = tomllib.loads((tmp_path / "s" / "secure.toml").read_text())
    assert (settings["host"], settings["plain_host"]) == ("0.0.0.0", "127.0.0.1")
    assert settings["advertised_address"] == "broker.example.com"


def test_a_context_for_the_commands(magnetar: Run, tmp_path: Path) -> None:
    contexts = tmp_path / "contexts.json"
    for _ in range(2):
        assert magnetar("secure", "init", tmp_path / "s", "--context", "prod").code == 0
    place = load(contexts).place("prod")
    assert place.admin_url == "https://localhost:8443"
    assert Path(place.token_file).is_file()
    ended = magnetar("secure", "init", tmp_path / "other", "--context", "prod")
    assert (ended.code, "another broker's" in ended.err) == (1, True)
