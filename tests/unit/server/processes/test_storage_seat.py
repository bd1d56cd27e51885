"""What the storage process of several processes is told, and the settings that go with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.processes.storage_seat import StorageSeat, with_storage
from magnetar.server.settings.config import StandaloneConfig


def test_a_seat_comes_back() -> None:
    seat = StorageSeat("/run/x", "/etc/magnetar.toml", {"data_dir": Path("/data"), "broker_port": 0}, "p4ss")
    assert StorageSeat.decode(seat.encode()) == seat


def test_one_bookie_with_one_copy_unless_bookies_are_set() -> None:
    alone = with_storage(StandaloneConfig(processes=2))
    layout = alone.ledger_ensemble_size, alone.ledger_write_quorum, alone.ledger_ack_quorum
    assert (alone.bookies, layout) == (1, (1, 1, 1))
    three = StandaloneConfig(processes=2, bookies=3)
    assert with_storage(three) == three


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (StandaloneConfig(processes=2, ephemeral=True), "leave --ephemeral or --processes out"),
        (StandaloneConfig(processes=2, metadata_url="etcd://h:1"), "magnetar broker --processes"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(config: StandaloneConfig, reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        with_storage(config)
