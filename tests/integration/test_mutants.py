"""Some mutants of the ordering and the security rules, in every run; all of them: `./dev mutate`."""

from __future__ import annotations

import mutate
import pytest

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

QUICK = (
    "a failed sync is the last",
    "a failed commit ends the process",
    "delta before receipt",
    "snapshot before trimming",
    "a right is a granted one",
    "others speak for themselves alone",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_rule_is_noticed(name: str) -> None:
    (rule,) = (rule for rule in mutate.ALL if rule.name == name)
    assert mutate.first_failure(rule, rule.tests) is not None
    # And it is the rule that they notice, not the copy.
    if name == QUICK[0]:
        assert mutate.first_failure(None, rule.tests) is None
