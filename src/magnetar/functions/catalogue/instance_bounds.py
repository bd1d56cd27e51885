"""How many instances functions may have: of one tenant, and all together (pure).

Each instance is a process, so without a bound one tenant takes the memory of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.refusals import FunctionsFullError


@dataclass(frozen=True, slots=True)
class InstanceBounds:
    """Most instances, running or stopped."""

    all_max: int = 1_024
    tenant_max: int = 128

    def check(self, wanted: FunctionConfig, others: Iterable[FunctionConfig]) -> None:
        """Raises FunctionsFullError when a function does not fit beside the others."""
        of_all = of_tenant = wanted.parallelism
        for other in others:
            of_all += other.parallelism
            if other.tenant == wanted.tenant:
                of_tenant += other.parallelism
        if of_tenant > self.tenant_max:
            raise FunctionsFullError(
                f"functions of tenant {wanted.tenant} would have {of_tenant} instances,"
                f" and may have {self.tenant_max}",
                remedy="delete functions, lower a parallelism, or have an operator raise"
                " tenant_function_instances_max",
            )
        if of_all > self.all_max:
            raise FunctionsFullError(
                f"all functions together would have {of_all} instances, and may have {self.all_max}",
                remedy="have an operator raise function_instances_max",
            )


DEFAULT_BOUNDS: Final = InstanceBounds()
