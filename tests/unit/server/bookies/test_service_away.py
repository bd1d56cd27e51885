"""What a process tells of a metadata service that was away, and what it reads anew then."""

from __future__ import annotations

import asyncio
import json

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.bookkeeper.racks import UNKNOWN_RACK, BookieRacks
from magnetar.metadata.keys import BOOKIE_RACKS
from magnetar.metadata.outages import Outages
from magnetar.metadata.store import SessionEvent
from magnetar.observability.metrics import Exposition
from magnetar.runtime.tasks import TaskGroup
from magnetar.server.bookies.opened_ledgers import follow_racks
from support.ending_sessions import EndingSessions
from support.storage import until


def test_racks_that_changed_without_a_connection_are_read_when_it_is_back() -> None:
    async def story() -> None:
        store, tasks = EndingSessions(ManualClock()), TaskGroup("test")
        racks = BookieRacks(store, BOOKIE_RACKS)
        await racks.load()
        cancel = follow_racks(store, racks, tasks)
        store.leave()
        document = {"default": {"b1:3181": {"rack": "/r1", "hostname": ""}}}
        await store.put(BOOKIE_RACKS, json.dumps(document).encode())
        assert racks.of("b1:3181") == UNKNOWN_RACK
        store.back()
        await until(lambda: racks.of("b1:3181") == "/r1")
        cancel()
        await tasks.close()

    asyncio.run(story())


def test_an_outage_is_in_the_log_and_among_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        clock = ManualClock()
        store = EndingSessions(clock)
        outages = Outages(store, clock)

        def figures() -> list[str]:
            out = Exposition()
            outages.collect_metrics(out)
            return [line for line in out.render().splitlines() if not line.startswith("#")]

        connected = "magnetar_metadata_service_connected"
        assert f"{connected} 1" in figures()
        store.leave()
        store.tell(SessionEvent.CONNECTION_LOST)
        assert {f"{connected} 0", "magnetar_metadata_service_outages_total 1"} <= set(figures())
        assert "the metadata service cannot be reached: what is loaded goes on" in caplog.text
        clock.advance(12_345)
        with caplog.at_level("INFO"):
            store.tell(SessionEvent.SESSION_LOST)
            assert f"{connected} 0" in figures()
            store.back(SessionEvent.SESSION_RENEWED)
        assert "the metadata service is reached again, after 12.3 s" in caplog.text
        assert f"{connected} 1" in figures()
        outages.close()

    asyncio.run(story())
