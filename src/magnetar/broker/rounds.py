"""Background rounds over many topics: what fails on one is said and left to the next round."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from magnetar.base.errors import MagnetarError

_log = logging.getLogger("magnetar.broker")


async def guarded(work: Awaitable[object], what: str) -> None:
    """Awaits background work on one topic; whatever fails is logged and left to the next round.

    A round that ended with the first topic in trouble would leave out all that come after it, in every round:
    one producer's odd number would stop the snapshots and the expiry of topics that it does not know.
    """
    try:
        await work
    except MagnetarError as error:  # the function's contract: the next round is the retry
        _log.warning("%s failed, tried again later: %s", what, error)
    except Exception:  # noqa: BLE001  # one topic must not stop the rounds of the others
        _log.exception("%s failed unexpectedly, tried again later", what)
