"""Some mutants of the ordering rules, in every run; all of them: `./dev mutate`."""

from __future__ import annotations

import mutate
import pytest
from ordering_rules import RULES

pytestmark = pytest.mark.process

QUICK = (
    "a failed sync is the last",
    "a failed commit ends the process",
    "delta before receipt",
    "snapshot before trimming",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_rule_is_noticed(name: str) -> None:
    (rule,) = (rule for rule in RULES if rule.name == name)
    assert mutate.first_failure(rule, rule.tests) is not None
    # And it is the rule that they notice, not the copy.
    if name == QUICK[0]:
        assert mutate.first_failure(None, rule.tests) is None
