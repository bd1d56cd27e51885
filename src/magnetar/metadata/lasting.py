"""Makes ephemeral nodes that exist as long as their process works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.metadata.store import MetadataStore, SessionEvent


async def in_lasting_session(store: MetadataStore, work: Callable[[], Awaitable[None]]) -> None:
    """Does `work`, which makes ephemeral nodes, until it has run once without the end of a session.

    The nodes of a session vanish with it; a caller that starts to watch sessions only after `work` would miss
    an end during `work`. Raises what `work` raises.
    """
    lost = 0

    def count(event: SessionEvent) -> None:
        nonlocal lost
        lost += event is SessionEvent.SESSION_LOST

    unwatch = store.watch_session(count)
    try:
        before = -1
        while before != lost:
            before = lost
            await work()
    finally:
        unwatch()
