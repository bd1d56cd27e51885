"""Names of what is logged, and how often one of them may be."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.observability import logs
from magnetar.observability.events import event_of
from magnetar.observability.log_limit import WINDOW_S, EventLimit
from magnetar.observability.metrics import Exposition


@pytest.mark.parametrize(
    ("logger", "template", "name"),
    [
        ("magnetar.broker", "%s: connection closed: %s", "broker.connection-closed"),
        ("magnetar.bookie", "%s: cut off %d bytes at byte %d", "bookie.cut-off-bytes-at-byte"),
        ("magnetar.tiered", "%s", "tiered.fetch-ahead"),
        ("magnetar.managedlog", "log %s: %s", "managedlog.fetch-ahead"),
        ("magnetar.server", "%.1f s and 100%% of %r", "server.s"),
        ("magnetar.audit", "changed: %s of %s: %s", "audit.changed"),
    ],
)
def test_names_are_made_of_what_does_not_change(logger: str, template: str, name: str) -> None:
    assert event_of(logger, template, "_fetch_ahead") == name


def test_what_comes_in_a_loop_is_cut_and_counted() -> None:
    limit = EventLimit(3)
    assert [limit.admit("a", 0.0) for _ in range(5)] == [0, 0, 0, None, None]
    assert limit.admit("b", 0.0) == 0
    assert limit.admit("a", WINDOW_S) == 2
    assert limit.admit("a", WINDOW_S + 1) == 0
    assert [EventLimit(0).admit("a", 0.0) for _ in range(3)] == [0, 0, 0]


def counted() -> dict[str, float]:
    out = Exposition()
    list(logs.collect(out))
    return {
        sample.labels.get("level", "suppressed"): sample.value
        for family in text_string_to_metric_families(out.render())
        for sample in family.samples
    }


def test_records_name_their_event_and_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = counted()
    logs.configure(path=tmp_path / "log", as_json=True, per_minute_max=2)
    for number in range(5):
        logging.getLogger("magnetar.broker").warning("%s: request %d refused: %s", "peer", number, "no")
        logging.getLogger("magnetar.audit").info("changed: %s of %s: %s", "role", "peer", "PUT /")
    written = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert written.count("broker.request-refused") == 2
    assert written.count("audit.changed") == 5
    monkeypatch.setattr("magnetar.observability.logs.time.monotonic", lambda: 1e9)
    logging.getLogger("magnetar.broker").warning("%s: request %d refused: %s", "peer", 6, "no")
    newest = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert newest["event"] == "broker.request-refused"
    assert newest["message"].endswith("(before it 3 of broker.request-refused were left out)")
    after = counted()
    assert after["warning"] - before["warning"] == 6
    assert after["suppressed"] - before["suppressed"] == 3
