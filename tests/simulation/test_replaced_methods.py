"""The simulator replaces nothing of the product: rules and parts are handed in, broken ones too."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from sim.balance.mutations import BALANCE_MUTATIONS
from sim.breaking import Mutation
from sim.broker.mutations import BROKER_MUTATIONS
from sim.cluster.mutations import CLUSTER_MUTATIONS
from sim.mutations import LEDGER_MUTATIONS
from sim.owners.mutations import OWNER_MUTATIONS
from sim.renewing import PLACES
from sim.rules import RulesInForce
from sim.several.mutations import SEVERAL_MUTATIONS
from sim.transactions.mutations import TRANSACTION_MUTATIONS

EVERY: Final[dict[str, dict[str, Mutation]]] = {
    "ledgers": LEDGER_MUTATIONS,
    "cluster": CLUSTER_MUTATIONS,
    "owners": OWNER_MUTATIONS,
    "balance": BALANCE_MUTATIONS,
    "broker": BROKER_MUTATIONS,
    "transactions": TRANSACTION_MUTATIONS,
    "several": SEVERAL_MUTATIONS,
}
"""By scenario."""

PRODUCT: Final = "magnetar."


def module_of(scenario: str) -> str:
    return ".".join(PLACES[scenario].with_suffix("").parts)


def broken_parts() -> Iterator[tuple[type, type]]:
    """Each class of the files of mutations, with each class of the product that it stands for."""
    for module in {module_of(scenario) for scenario in EVERY}:
        for _, kind in inspect.getmembers(sys.modules[module], inspect.isclass):
            if kind.__module__ == module:
                for base in kind.__mro__[1:]:
                    if base.__module__.startswith(PRODUCT):
                        yield kind, base


def test_nothing_of_the_product_is_replaced() -> None:
    """A rule is an attribute of `RulesInForce`; other replacements are in the simulator's own drivers."""
    replaced = set()
    for mutations in EVERY.values():
        for mutation in mutations.values():
            for owner, name, _ in mutation.replaced:
                place = owner.__module__ if isinstance(owner, type) else owner.__name__
                if place.startswith(PRODUCT):
                    replaced.add(f"{owner.__name__}.{name}")
    assert sorted(replaced) == [], "hand the rule in, as ledger/quorum/rules.py does"


def test_broken_parts_change_only_what_is_public() -> None:
    """A private method that a broken part redefines would be one that the product keeps for the simulator."""
    private = {
        f"{kind.__name__}.{name}"
        for kind, base in broken_parts()
        for name, part in vars(kind).items()
        if inspect.isfunction(part)
        and name in vars(base)
        and name.startswith("_")
        and not name.endswith("__")
    }
    assert sorted(private) == []


@pytest.mark.parametrize("scenario", EVERY)
def test_each_broken_rule_differs_from_the_one_in_force(scenario: str) -> None:
    """Otherwise a seed would show nothing: what is handed in must redefine something."""
    for name, mutation in EVERY[scenario].items():
        for owner, part, broken in mutation.replaced:
            if owner is RulesInForce:
                kind = broken if isinstance(broken, type) else type(broken)
                assert kind.__module__ == module_of(scenario), f"{name}: {part} is the product's own"
