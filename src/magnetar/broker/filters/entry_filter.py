"""The interface of entry filters, and its values.

A filter gets vectors and answers with vectors: a call for each entry would cost as much as its delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from magnetar.base.errors import MagnetarError
from magnetar.base.expressions import no_step
from magnetar.broker.topic.batches import Singles, open_batch
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import is_batch

SINGLES_MAX: Final = 5_000
"""Messages of a batch that is opened for filters: some milliseconds in the loop that serves all clients."""
METADATA_BYTES_MAX: Final = 64 << 10
"""Bytes of metadata of a message that the built-in filter examines."""
PLAIN_BYTES_MAX: Final = 1 << 20
"""Decompressed bytes of a batch that is opened for filters, at most."""


class Verdict(Enum):
    """The decision about an entry, for one subscription. Source: Pulsar's EntryFilter.FilterResult."""

    ACCEPT = "accept"
    """It is sent."""
    REJECT = "reject"
    """It counts as acknowledged and is never sent."""
    RESCHEDULE = "reschedule"
    """It is judged again later."""


@dataclass(slots=True)
class Candidate:
    """An entry that is about to be sent: one message, or a batch as a whole."""

    metadata: pb.MessageMetadata
    """Metadata of the message or of the batch; not to be changed. A batch has the properties and the key that
    its producer set for the batch: none, or those of its first message. See `singles`."""
    payload: memoryview
    """As it is stored: compressed, encrypted, a batch with its messages in it."""
    messages: int
    """In the entry, at least 1."""
    _opened: Singles | None = field(default=None, init=False)

    @property
    def is_batch(self) -> bool:
        """Whether there are messages in it, be it one."""
        return is_batch(self.metadata)

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the metadata of the message, or of the batch as a whole."""
        return self.metadata.ByteSize()

    @property
    def opened_bytes(self) -> int:
        """The bytes that opening it costs: the decompressed size of its batch; 0 when it is not opened."""
        if not self.is_batch or self.messages > SINGLES_MAX or self.metadata.encryption_keys:
            return 0
        if self.metadata.compression == pb.NONE:
            return len(self.payload)
        size = self.metadata.uncompressed_size
        return size if size <= PLAIN_BYTES_MAX else 0

    def singles(self, step: Callable[[], object] = no_step) -> Singles | None:
        """Metadata and payload of each message of a batch; None when it cannot be opened here.

        That is when it is encrypted, damaged, or large: `SINGLES_MAX`, `PLAIN_BYTES_MAX`,
        `METADATA_BYTES_MAX`. A filter that rejects such a batch rejects messages that it has not seen.
        `step`: of the pace, between messages.
        """
        if self._opened is None and self.messages <= SINGLES_MAX:
            self._opened = open_batch(
                self.metadata,
                self.payload,
                PLAIN_BYTES_MAX,
                metadata_bytes_max=METADATA_BYTES_MAX,
                step=step,
            )
        return self._opened


@dataclass(frozen=True, slots=True)
class Context:
    """The subscription for which a filter decides."""

    topic: str
    """Full name, with the partition."""
    subscription: str
    properties: Mapping[str, str]
    """The subscription's properties. When they change, a new filter is created."""


class EntryFilter(Protocol):
    """Decides for one subscription. Runs on the event loop that serves all clients, unless it is a
    `PacedFilter`: it must not wait, and has a few milliseconds for a vector."""

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """A verdict for each. What it raises holds the subscription up until the vector is judged."""


class Pacing(Protocol):
    """The pace of work beside the loop: `runtime/pacing.py` `WorkPace`."""

    def step(self) -> None:
        """The work may rest here. Raises TookTooLongError when its time is over."""


@runtime_checkable
class PacedFilter(Protocol):
    """A filter that can tell how much work it is to judge, and is judged beside the loop where that is much.
    Its verdict depends on the candidate alone."""

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """See `EntryFilter`."""

    def work_us(self, candidate: Candidate) -> float:
        """Microseconds that judging takes at most, whatever the entry holds. Costs no more than a look."""

    def judge_paced(self, candidate: Candidate, pace: Pacing) -> Verdict:
        """As `judge`, with less than half a millisecond between two steps of the pace."""


class FilterFactory(Protocol):
    """Creates the filter of a subscription. An installed filter's class is one, if it takes a Context."""

    def __call__(self, context: Context) -> EntryFilter:
        """Raises FilterError when the subscription's properties make no sense."""


class FilterError(MagnetarError):
    """Entries cannot be judged. They are neither sent nor acknowledged until they can."""
