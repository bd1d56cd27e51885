"""The election of the leader: what follows from its record as it was read (pure).

Source: Pulsar's LeaderElection.

Theory of operation. The record is ephemeral: the session that made it is the leader's. A broker that reads
it asks `judge` what to do, does that, and reads again, until the answer is to follow.

Rules:
1. A record that no session takes along is removed: it is from a copy of the metadata, and its leader would
   lead for ever without being there.
2. A broker leads by a record of its present session only: the name alone may be that of its former process.
3. A record is made by a broker that takes part: one that leaves or has no session would lead nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from magnetar.broker.balance.balance_rules import RULES, BalanceRules


class LeaderRecord(NamedTuple):
    """The record of the leader as it was read."""

    broker_id: str
    """The broker that it names; "": it names none."""
    is_ephemeral: bool
    """Whether it goes with a session."""
    is_own: bool
    """Whether the present session of the reader made it."""


class LeaderStep(Enum):
    """What is to be done about it."""

    MAKE = "make"
    """Make the record unless there is one by now, and read again."""
    REMOVE = "remove"
    """Remove the record as it was read, and read again."""
    FOLLOW = "follow"
    """Nothing."""


class LeaderVerdict(NamedTuple):
    """What a broker concludes."""

    step: LeaderStep
    leader: str = ""
    """FOLLOW: id of the broker that leads; "": none does, as far as this broker may say."""


def judge(
    record: LeaderRecord | None, own_id: str, *, takes_part: bool, rules: BalanceRules = RULES
) -> LeaderVerdict:
    """What follows from the record; None: there is none.

    `takes_part`: whether the broker `own_id` may lead now.
    """
    if record is None:
        return LeaderVerdict(LeaderStep.MAKE) if takes_part else LeaderVerdict(LeaderStep.FOLLOW)
    if not rules.goes_with_a_session(is_ephemeral=record.is_ephemeral):
        return LeaderVerdict(LeaderStep.REMOVE)
    if record.broker_id == own_id and not record.is_own:
        # This broker's former process made it, and only one process has the report of an id.
        return LeaderVerdict(LeaderStep.REMOVE) if takes_part else LeaderVerdict(LeaderStep.FOLLOW)
    return LeaderVerdict(LeaderStep.FOLLOW, record.broker_id)
