"""Background rounds over many topics: a failure on one is logged and left to the next round."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from magnetar.base.errors import MagnetarError

_log = logging.getLogger("magnetar.broker")


async def guarded(work: Awaitable[object], what: str) -> None:
    """Awaits background work on one topic; any error is logged and left to the next round.

    A round that ended at the first error would leave out all later topics, in every round: one producer's odd
    number would stop the snapshots and the expiry of unrelated topics.
    """
    try:
        await work
    except MagnetarError as error:  # the function's contract: the next round is the retry
        _log.warning("%s failed, tried again later: %s", what, error)
    except Exception:  # noqa: BLE001  # one topic must not stop the rounds of the others
        _log.exception("%s failed unexpectedly, tried again later", what)
