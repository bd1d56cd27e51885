"""What the topics of a bundle have to do (pure). Source: Pulsar's NamespaceBundleStats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MESSAGE_BYTES: Final = 1024
"""A message costs about as much as so many bytes: most of the work on a small one does not depend on its
size."""


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """One bundle at its owner; rates are averages since the report before."""

    rate_in: float = 0.0
    """Messages per second from producers."""
    rate_out: float = 0.0
    """Messages per second to consumers."""
    bytes_in: float = 0.0
    """Bytes per second."""
    bytes_out: float = 0.0
    """Bytes per second."""
    topics: int = 0
    """Loaded ones."""
    producers: int = 0
    consumers: int = 0

    @property
    def cost(self) -> float:
        """Work of its broker, to be compared with that of other bundles; in messages per second."""
        return self.rate_in + self.rate_out + (self.bytes_in + self.bytes_out) / _MESSAGE_BYTES

    @property
    def sessions(self) -> int:
        """Producers and consumers."""
        return self.producers + self.consumers

    @property
    def rate(self) -> float:
        """Messages per second, in and out."""
        return self.rate_in + self.rate_out

    @property
    def size_rate(self) -> float:
        """Bytes per second, in and out."""
        return self.bytes_in + self.bytes_out

    @property
    def in_use(self) -> bool:
        """Whether clients are there, or messages flow."""
        return self.sessions > 0 or self.cost > 0

    def plus(self, other: BundleLoad) -> BundleLoad:
        """Both together."""
        return BundleLoad(
            self.rate_in + other.rate_in,
            self.rate_out + other.rate_out,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
            self.topics + other.topics,
            self.producers + other.producers,
            self.consumers + other.consumers,
        )

    def document(self) -> dict[str, object]:
        """As an element of a report's `lastStats`."""
        return {
            "msgRateIn": round(self.rate_in, 1),
            "msgThroughputIn": round(self.bytes_in, 1),
            "msgRateOut": round(self.rate_out, 1),
            "msgThroughputOut": round(self.bytes_out, 1),
            "consumerCount": self.consumers,
            "producerCount": self.producers,
            "topics": self.topics,
            "cacheSize": 0,
        }

    @classmethod
    def of(cls, number: Mapping[str, float]) -> BundleLoad:
        """The inverse of `document`."""
        return cls(
            rate_in=number["msgRateIn"],
            rate_out=number["msgRateOut"],
            bytes_in=number["msgThroughputIn"],
            bytes_out=number["msgThroughputOut"],
            topics=int(number["topics"]),
            producers=int(number["producerCount"]),
            consumers=int(number["consumerCount"]),
        )


NUMBERS: Final = tuple(name for name in BundleLoad().document() if name != "cacheSize")
"""Names of the fields of `document` that are read."""
