"""Has entries judged, beside the loop where it takes long (driver)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from magnetar.broker.filters.entry_filter import FilterError, Verdict
from magnetar.broker.filters.judge import LIMIT_S, Judge
from magnetar.runtime.fair_places import CrowdedError
from magnetar.runtime.pacing import paced
from magnetar.runtime.tasks import pause


async def judged(judge: Judge, tenant: str, entries: Sequence[bytes], counts: Sequence[int]) -> list[Verdict]:
    """Verdicts on the first of these entries, one at least. Raises FilterError.

    The filters must not be asked about anything else meanwhile.
    """
    while not (found := judge.verdicts(entries, counts)):
        if judge.rules.turn.spent:
            await pause(0)
            continue
        try:
            foreseen = await paced(tenant, LIMIT_S, partial(judge.foresee, entries, counts))
        except CrowdedError as error:
            raise FilterError("too many subscriptions of the tenant wait for their filters") from error
        return judge.verdicts(entries, counts, foreseen)
    return found
