"""What policies say of a topic's log and of deduplication."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.topic_settings import TopicSettings
from magnetar.ledger.api import Copies
from magnetar.managedlog.config import UNLIMITED, Retention

CONFIG = BrokerConfig(retention_minutes=2, retention_mib=3, deduplication=True)
MINUTE_MS = 60_000


def settings(own: dict[str, Any], namespace: dict[str, Any], config: BrokerConfig = CONFIG) -> TopicSettings:
    return TopicSettings.of(config, own, namespace)


def kept(minutes: int, mib: int) -> dict[str, Any]:
    return {"retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mib}}


@pytest.mark.parametrize(
    ("own", "namespace", "expected"),
    [
        ({}, {}, Retention(ms=2 * MINUTE_MS, size_bytes=3 << 20)),
        ({}, kept(5, 6), Retention(ms=5 * MINUTE_MS, size_bytes=6 << 20)),
        (kept(7, 8), kept(5, 6), Retention(ms=7 * MINUTE_MS, size_bytes=8 << 20)),
        ({}, kept(-1, -1), Retention(ms=UNLIMITED, size_bytes=UNLIMITED)),
        ({}, {"retention_policies": None}, Retention(ms=2 * MINUTE_MS, size_bytes=3 << 20)),
        ({}, {"retention_policies": {"retentionTimeInMinutes": 0}}, Retention(ms=0, size_bytes=3 << 20)),
    ],
)
def test_the_narrowest_retention_wins(
    own: dict[str, Any], namespace: dict[str, Any], expected: Retention
) -> None:
    assert settings(own, namespace).retention == expected


@pytest.mark.parametrize(
    ("own", "namespace", "expected"),
    [(None, None, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_the_narrowest_that_says_something_turns_deduplication_on_or_off(
    own: bool | None, namespace: bool | None, *, expected: bool
) -> None:
    found = settings({"deduplicationEnabled": own}, {"deduplicationEnabled": namespace})
    assert found.deduplicates == expected


def test_a_broker_that_was_told_no_copies_asks_no_policy_for_them() -> None:
    persistence = {"persistence": {"bookkeeperEnsemble": 5}}
    assert settings(persistence, {}).copies is None
    told = BrokerConfig(copies=Copies(3, 2, 2))
    assert settings(persistence, {}, told).copies == Copies(5, 2, 2)
    assert settings({}, {}, told).copies is None
