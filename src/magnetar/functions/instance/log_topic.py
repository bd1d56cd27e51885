"""Log records of a function to its log topic.

Records are collected, at most so many, and leave with the next turn of the instance. When the topic cannot be
reached they are dropped and counted: a log must not stop a function.
"""

from __future__ import annotations

import logging

from magnetar.functions.instance.batches_out import OutputMessage
from magnetar.functions.instance.plan import InstancePlan

RECORDS_MAX = 1_000
"""Most records that wait."""
_TEXT_CHARS_MAX = 32_768


class LogTopicHandler(logging.Handler):
    """Collects records."""

    def __init__(self, plan: InstancePlan) -> None:
        super().__init__()
        self._instance = str(plan.instance)
        self._full_name = plan.full_name
        self._records: list[OutputMessage] = []
        self.dropped = 0
        """Records that were not kept."""

    def emit(self, record: logging.LogRecord) -> None:
        """Collects a record, with properties as Pulsar's Java functions set them."""
        if len(self._records) >= RECORDS_MAX:
            self.dropped += 1
            return
        text = self.format(record)[:_TEXT_CHARS_MAX]
        properties = {
            "loglevel": record.levelname,
            "instance": self._instance,
            "fqn": self._full_name,
        }
        self._records.append(
            OutputMessage(text.encode(errors="replace"), None, properties, int(record.created * 1000))
        )

    @property
    def has_any(self) -> bool:
        """Whether records wait."""
        return bool(self._records)

    def take(self) -> list[OutputMessage]:
        """The collected records, each once."""
        records, self._records = self._records, []
        return records
