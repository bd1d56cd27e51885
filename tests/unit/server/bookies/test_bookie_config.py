"""What a bookie is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from magnetar.server.bookies.bookie import BookieConfig
from magnetar.server.bookies.bookie_security import BookieCredentials, BookieSecurity

CONFIG = BookieConfig(metadata="zk://localhost/ledgers", data=Path("data"))


def test_a_disk_is_full_from_the_chosen_share_on() -> None:
    open_to_all = BookieCredentials(BookieSecurity())
    told = replace(CONFIG, full_share=0.5).node_options(open_to_all).fullness
    assert (told.full_share, told.room_share) == (0.5, 0.48)
    assert CONFIG.node_options(open_to_all).fullness.full_share == 0.95
