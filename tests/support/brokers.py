"""A broker on ledgers and metadata in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes.ledgers import FakeLedgers
from fakes.tiered import FakeTiering
from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.service import Broker, BrokerConfig
from magnetar.broker.topic.topic import Topic
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.logs import ManagedLogs
from magnetar.runtime.tasks import TaskGroup
from support.ending_sessions import EndingSessions


class BrokerOnFakes:
    """What a process composes, without sockets, disks and clocks."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        log_config: dict[str, int],
        work_dir: Path | None = None,
        **guard: Any,
    ) -> None:
        """`log_config`: fields of ManagedLogConfig beside those that keep time out of it; `work_dir`: of
        tiered storage, None for a broker without; `guard`: the broker's `authentication` and
        `superuser_roles`."""
        self.clock = ManualClock()
        self.store = EndingSessions(self.clock)
        self.ledgers = FakeLedgers()
        self.tasks = TaskGroup("logs")
        self.tiering = None if work_dir is None else FakeTiering(work_dir, self.clock, self.tasks.spawn)
        self.logs = ManagedLogs(
            store=self.store,
            ledgers=self.ledgers,
            clock=self.clock,
            config=ManagedLogConfig(rollover_ms_min=0, cursor_flush_ms=0, **log_config),
            spawn=self.tasks.spawn,
            tiers=None if self.tiering is None else self.tiering.storage,
        )
        self.broker = Broker(
            config=config or BrokerConfig(),
            store=self.store,
            logs=self.logs,
            clock=self.clock,
            offloading=None if self.tiering is None else self.tiering.offloading,
            **guard,
        )

    async def topic(self, name: str) -> Topic:
        """The loaded topic, created when missing."""
        return await self.broker.topic(TopicName.parse(name))

    async def start(self) -> None:
        """Starts as the process does."""
        await self.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")

    async def close(self) -> None:
        """Stops as the process does."""
        await self.broker.drain()
        await self.broker.close()
        await self.logs.close()
        await self.tasks.close()
        await self.store.close()
