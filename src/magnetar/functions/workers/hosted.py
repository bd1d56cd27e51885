"""What the workers know of the process of an instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.workers.output_log import OutputLog


class HostedInstance(Protocol):
    """The process of one instance: `start`, then `ended` or `stop`, then `close`."""

    status: dict[str, object]
    """The figures that it told last."""
    is_running: bool
    """Whether it has loaded the code, and has not been told to end."""
    answered_s: float
    """When it said last that it goes on, by the loop's clock."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    async def start(self) -> None:
        """Starts it. Raises OSError."""
        ...

    async def ended(self) -> str:
        """Waits for its end; why it ended."""
        ...

    async def stop(self) -> None:
        """Lets it finish what is under way, and ends it at last by force."""
        ...

    def kill(self) -> None:
        """Ends it at once."""
        ...

    async def close(self) -> None:
        """Frees what belongs to it once it has ended."""
        ...

    def tell(self, what: Mapping[str, object]) -> None:
        """Says something to it."""
        ...

    async def ask(self) -> bool:
        """Asks for its figures; False when it does not answer."""
        ...

    async def stack(self) -> str:
        """Its Python stacks; empty when it cannot tell."""
        ...


Host = Callable[[InstancePlan, OutputLog], HostedInstance]
"""Makes the process of an instance, which is not started yet; the log takes what it writes."""
