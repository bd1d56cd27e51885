"""`/metrics` of work on topics."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.broker.registry.topic_states import IN_FLIGHT
from magnetar.broker.service import Broker
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels


def collect(broker: Broker, out: Exposition) -> Iterator[None]:
    """Flights of the registry, and cursors that are read back."""
    cluster = ("cluster", broker.config.cluster)
    states = dict.fromkeys(sorted(state.value for state in IN_FLIGHT), 0)
    now_ms, longest_ms = broker.clock.monotonic_ms(), 0.0
    for _, state, began_ms in broker.registry.under_way():
        states[state.value] += 1
        longest_ms = max(longest_ms, now_ms - began_ms)
    name = "magnetar_topics_under_way"
    for work, count in states.items():
        out.gauge(name, text_of(name), count, labels(cluster, ("work", work)))
    name = "magnetar_topics_under_way_seconds_max"
    out.gauge(name, text_of(name), longest_ms / 1000, labels(cluster))
    replays = broker.logs.replays
    name = "magnetar_cursor_replays_running"
    out.gauge(name, text_of(name), replays.running, labels(cluster))
    for name, value in (
        ("magnetar_cursor_replays_total", replays.cursors),
        ("magnetar_cursor_replay_entries_total", replays.entries),
    ):
        out.counter(name, text_of(name), value, labels(cluster))
    yield
