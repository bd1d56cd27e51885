"""Seeds of broken rules are written where they stand."""

from __future__ import annotations

import pytest
from sim.__main__ import MUTATIONS
from sim.breaking import Mutation
from sim.renewing import PLACES, renewed, with_seed
from sim.rules import RulesInForce

from support.sources import REPOSITORY


def text_of(mutation: Mutation) -> str:
    return (REPOSITORY / PLACES[mutation.scenario]).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_seed_can_be_replaced(name: str) -> None:
    mutation = MUTATIONS[name]
    text = text_of(mutation)
    assert with_seed(text, name, mutation.found_by) == text
    other = with_seed(text, name, 987654)
    assert other.count("found_by=987654") == 1
    assert with_seed(other, name, mutation.found_by) == text


def test_what_has_no_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="0 mutations no-such-rule"):
        with_seed(text_of(MUTATIONS["fence-holds"]), "no-such-rule", 1)


def test_a_seed_that_notices_stays_and_another_one_is_replaced() -> None:
    known = MUTATIONS["fence-holds"]
    stays = renewed(known, (), anew=False)
    assert stays is not None
    assert stays.seed == known.found_by
    # In these seeds nothing is noticed.
    blind = Mutation("nothing is broken", [(RulesInForce, "writing", RulesInForce.writing)], found_by=0)
    assert renewed(blind, range(2), anew=False) is None
    moved = Mutation(known.rule, known.replaced, found_by=-1, scenario=known.scenario)
    found = renewed(moved, [known.found_by], anew=True)
    assert found is not None
    assert found.seed in (-1, known.found_by)
