"""A mutant of the ordering and one of the security rules, in every run; all of them: `./dev mutate`."""

from __future__ import annotations

import mutate
import pytest

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

QUICK = ("a failed sync is the last", "a right is a granted one")
"""One of each list: they show that the command works. `nightly` has all as an exploration of its own."""


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_rule_is_noticed(name: str) -> None:
    (rule,) = (rule for rule in mutate.ALL if rule.name == name)
    assert mutate.first_failure(rule, rule.tests) is not None
    # And it is the rule that they notice, not the copy.
    if name == QUICK[0]:
        assert mutate.first_failure(None, rule.tests) is None
