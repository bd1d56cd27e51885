"""The election of a leader: what follows from its record as it was read."""

from __future__ import annotations

import pytest

from magnetar.broker.balance.election import LeaderRecord, LeaderStep, judge

OWN, OTHER = "a:8080", "b:8080"
MAKE, REMOVE, FOLLOW = LeaderStep


@pytest.mark.parametrize(
    ("record", "takes_part", "verdict"),
    [
        pytest.param(None, True, (MAKE, ""), id="there is none"),
        pytest.param(None, False, (FOLLOW, ""), id="none, for one that leaves"),
        pytest.param(LeaderRecord(OWN, True, True), True, (FOLLOW, OWN), id="its own"),
        pytest.param(LeaderRecord(OTHER, True, False), True, (FOLLOW, OTHER), id="another one's"),
        pytest.param(LeaderRecord(OTHER, False, False), True, (REMOVE, ""), id="a copy"),
        pytest.param(LeaderRecord(OWN, False, True), True, (REMOVE, ""), id="a copy of its own"),
        pytest.param(LeaderRecord(OWN, True, False), True, (REMOVE, ""), id="of its former process"),
        pytest.param(LeaderRecord(OWN, True, False), False, (FOLLOW, ""), id="the same, while it leaves"),
        pytest.param(LeaderRecord("", True, False), True, (FOLLOW, ""), id="names none"),
    ],
)
def test_what_follows_from_the_record(
    record: LeaderRecord | None, takes_part: bool, verdict: tuple[LeaderStep, str]
) -> None:
    assert judge(record, OWN, takes_part=takes_part) == verdict
