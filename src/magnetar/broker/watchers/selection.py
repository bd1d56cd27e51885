"""Which topics of a namespace a client sees that asks by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

from magnetar.base.names import TopicName
from magnetar.broker.watchers.pattern import Pattern
from magnetar.runtime.tasks import yield_loop
from magnetar.wire.checksum import crc32c

PATTERN_CHARS_MAX: Final = 50
"""Longer patterns are left to the client (Pulsar's subscriptionPatternMaxLength)."""

_WORK_MAX: Final = 50_000
"""States of the automaton walked through between two turns of other tasks: some ten milliseconds."""
_NAMES_MAX: Final = 2_000
"""Names looked at between two turns of other tasks."""

_SYSTEM: Final = re.compile(
    r"__change_events|__canary|__transaction_buffer_snapshot(_segments|_indexes)?"
    r"|__transaction_log_.*|transaction_coordinator_assign.*|.*__transaction_pending_ack"
)


class Matcher(Protocol):
    """What chooses topics: a pattern, or a wildcard."""

    work: int
    """Grows with what it has done so far."""

    def matches(self, text: str) -> bool:
        """Whether it chooses `tenant/namespace/name`, the name without a partition's suffix."""


def is_system(name: TopicName) -> bool:
    """Whether the topic is one of those that brokers keep for themselves; no client is told of them."""
    if "__" not in name.local and not name.local.startswith("transaction_"):
        # Nearly all names: long lists are asked for.
        return False
    return _SYSTEM.fullmatch(name.base.local) is not None


def compiled(text: str) -> Pattern:
    """The pattern of a client, without the domain that may stand before it. Raises PatternError."""
    domain, separator, rest = text.partition("://")
    if not separator:
        return Pattern(text)
    return Pattern(f"\\Q{rest}" if domain.rpartition("\\E")[2].find("\\Q") >= 0 else rest)


async def matching(pattern: Matcher, names: Iterable[TopicName]) -> list[TopicName]:
    """Those of the names that match; other tasks get their turns in between."""
    found = []
    pause_at = pattern.work + _WORK_MAX
    for number, name in enumerate(names, 1):
        base = name.base
        if pattern.matches(f"{base.tenant}/{base.namespace}/{base.local}"):
            found.append(name)
        if pattern.work > pause_at or number % _NAMES_MAX == 0:
            await yield_loop()
            pause_at = pattern.work + _WORK_MAX
    return found


def topics_digest(names: Iterable[str]) -> str:
    """CRC32C over the sorted names joined by commas, as eight hex digits of little-endian bytes."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()
