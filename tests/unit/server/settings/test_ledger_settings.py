"""Settings of where messages are kept must fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.ledger.client.ledger_options import LedgerUser
from magnetar.server.bookies.ledger_access import client_options, placement
from magnetar.server.settings.loading import load


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bookies": 3},
        {"bookies": 1, "ledger_ensemble_size": 1, "ledger_write_quorum": 1, "ledger_ack_quorum": 1},
        {"metadata_url": "zk://one:2181,two:2181/ledgers", "ledger_digest": "HMAC"},
        {"metadata_url": "zk+hierarchical://one:2181;two:2181/ledgers"},
        {"metadata_url": "etcd://one:2379/ledgers", "ledger_ensemble_size": 5, "ledger_write_quorum": 3},
    ],
)
def test_what_fits(settings: dict[str, object]) -> None:
    config = load(settings, environment={}).config
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ledger_ack_quorum": 3}, "must be in descending order"),
        ({"ledger_ack_quorum": 0}, "must be in descending order"),
        ({"ledger_write_quorum": 3}, "must be in descending order"),
        (
            {"bookie_region_copies": "here=3,there=3"},
            "are 6 copies of an entry",
        ),
        ({"bookie_region_copies": "here"}, "it must be as here=3,there=3"),
        ({"bookie_racks_min": 0}, "must be at least 1"),
        ({"bookie_tls_key": "key.pem"}, "set both or none"),
        ({"bookie_user": "writer"}, "set both or none"),
        ({"ledger_digest": "MD5"}, "it must be one of CRC32C, CRC32, HMAC, DUMMY"),
        ({"bookies": 1}, "a ledger needs 2: start more, or set a smaller"),
        ({"bookies": 3, "metadata_url": "zk://one/ledgers"}, "drop bookies or metadata_url"),
        ({"metadata_url": "sqlite:/tmp/file"}, "it must be as zk://host:port/ledgers"),
        ({"metadata_session_timeout_seconds": 0}, "must be at least 1"),
        ({"bookies": 3, "ephemeral": True}, "bookies make no sense; drop one of the two"),
    ],
)
def test_what_does_not_fit_is_said(settings: dict[str, object], told: str) -> None:
    with pytest.raises(StartupError, match=told):
        load(settings, environment={})


def test_copies_that_regions_cannot_take_are_told_before_there_are_messages() -> None:
    config = load(
        {"bookie_region_copies": "here=1,there=1", "bookies": 3, "ledger_ensemble_size": 3}, environment={}
    ).config
    with pytest.raises(StartupError, match="an ensemble of 2, or a multiple, can"):
        placement(config, lambda _: "/here/rack")


def test_what_bookies_are_shown_is_read(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    said = {"bookie_user": "writer", "bookie_password": password, "metadata_url": "zk://one/ledgers"}
    options = client_options(load(said, environment={}).config)
    assert (options.user, options.tls) == (LedgerUser("writer", "secret"), None)
    missing = load({"bookie_tls": True, "bookie_tls_ca": tmp_path / "ca.pem"}, environment={}).config
    with pytest.raises(StartupError, match=r"ca\.pem cannot be used: No such file"):
        client_options(missing)
