"""Reads the results of a broker's canaries from its metrics (docs/monitoring.md)."""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar.cli.diagnosis.samples import parsed

_NAMES: Final = {
    "magnetar_canary_sent_total": "sent",
    "magnetar_canary_received_total": "received",
    "magnetar_canary_lost_total": "lost",
    "magnetar_canary_refused_total": "refused",
    "magnetar_canary_up": "up",
    "magnetar_canary_end_to_end_seconds_sum": "seconds",
}


class Canary(NamedTuple):
    """The canary of one namespace."""

    namespace: str
    up: bool
    sent: int
    lost: int
    refused: int
    mean_ms: float
    """Average milliseconds from publishing to delivery since the broker's start."""


def canaries_of(text: str) -> list[Canary]:
    """The canaries in a scrape, by namespace."""
    found = []
    for (namespace,), figures in sorted(parsed(text, _NAMES, ("namespace",)).items()):
        received = figures.get("received", 0.0)
        found.append(
            Canary(
                namespace,
                figures.get("up") == 1,
                int(figures.get("sent", 0)),
                int(figures.get("lost", 0)),
                int(figures.get("refused", 0)),
                1000 * figures.get("seconds", 0.0) / received if received else 0.0,
            )
        )
    return found


def summary(canaries: list[Canary]) -> str:
    """A line about the canaries; "" without any."""
    if not canaries:
        return ""
    down = [canary.namespace for canary in canaries if not canary.up]
    lost = sum(canary.lost for canary in canaries)
    slowest = max(canary.mean_ms for canary in canaries)
    state = f"{len(down)} of {len(canaries)} DOWN ({', '.join(down[:3])})" if down else f"{len(canaries)} up"
    return f"canaries: {state}, {lost} messages lost, {slowest:.1f} ms end to end on average"
