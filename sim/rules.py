"""The rules that simulated clients and bookies hand to the product's cores: the true ones, or a broken one.

`mutations.py` puts a broken one in its place for a while.
"""

from __future__ import annotations

from magnetar.bookie.known_ledger import SERVING_RULES, ServingRules
from magnetar.ledger.quorum.rules import RECOVERY_RULES, WRITING_RULES, RecoveryRules, WritingRules


class RulesInForce:
    """The rules of writing, recovery and fences that all running stories use."""

    writing: WritingRules = WRITING_RULES
    recovery: RecoveryRules = RECOVERY_RULES
    serving: ServingRules = SERVING_RULES
