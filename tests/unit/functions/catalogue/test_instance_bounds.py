"""Bounds of instances: which functions fit beside which."""

from __future__ import annotations

import pytest

from magnetar.functions.catalogue.instance_bounds import InstanceBounds
from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.refusals import FunctionsFullError
from support.functions import config

BOUNDS = InstanceBounds(all_max=10, tenant_max=6)


def function(tenant: str, instances: int) -> FunctionConfig:
    return config(tenant=tenant, parallelism=instances)


def test_a_tenant_and_all_together_have_a_bound() -> None:
    BOUNDS.check(function("a", 6), [])
    BOUNDS.check(function("a", 2), [function("a", 4), function("b", 4)])
    with pytest.raises(FunctionsFullError, match="of tenant a would have 7 instances, and may have 6"):
        BOUNDS.check(function("a", 3), [function("a", 4), function("b", 1)])
    with pytest.raises(FunctionsFullError, match="together would have 11 instances, and may have 10"):
        BOUNDS.check(function("a", 5), [function("b", 6)])
