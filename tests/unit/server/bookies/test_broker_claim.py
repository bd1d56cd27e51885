"""The place of the one broker on a cluster."""

from __future__ import annotations

import asyncio

from magnetar.base.clock import ManualClock
from magnetar.server.bookies.replicated_stores import claim
from support.ending_sessions import EndingSessions


def test_a_claim_whose_session_ends_meanwhile_is_made_again() -> None:
    """It was believed to hold: another broker could have served the same topics."""

    async def story() -> None:
        store = EndingSessions(ManualClock())
        store.ends = 2
        await claim(store, "/magnetar/standalone", 1.0)
        assert await store.exists("/broker")
        assert store.ends == 0
        await store.close()

    asyncio.run(story())
