"""Settings of where messages are kept must fit together."""

from __future__ import annotations

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.loading import load


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
