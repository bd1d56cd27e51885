"""How full the disk of the data folder is, told to the broker."""

from __future__ import annotations

from pathlib import Path

from magnetar.broker.full_disk import disk_measured
from magnetar.broker.service import Broker
from magnetar.runtime.threads import in_thread
from magnetar.server.storage.datafolder import used_percent


async def look_at_disk(broker: Broker, folder: Path) -> None:
    """Measures it once."""
    await disk_measured(broker, await in_thread(lambda: used_percent(folder)))
