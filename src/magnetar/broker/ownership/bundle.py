"""A bundle by its name: a range of hashes of a namespace (pure)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from magnetar.base.names import InvalidNameError, NamespaceName, TopicName
from magnetar.broker.policies.bundles import covers, hash_of
from magnetar.metadata import keys


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """Prints as `tenant/namespace/0x00000000_0x40000000`."""

    namespace: NamespaceName
    lower: int
    upper: int
    """The first hash that is not in it; 0xffffffff: the last one, which is."""

    @classmethod
    def parse(cls, text: str) -> Bundle:
        """The inverse of `str`. Raises ValueError, InvalidNamespaceNameError."""
        namespace, _, bounds = text.rpartition("/")
        lower, separator, upper = bounds.partition("_")
        if not separator:
            raise ValueError(f"{text!r} names no bundle")
        return cls(NamespaceName.parse(namespace), int(lower, 16), int(upper, 16))

    @property
    def range_name(self) -> str:
        """`0x00000000_0x40000000`"""
        return keys.bundle(self.lower, self.upper)

    def has(self, topic: TopicName) -> bool:
        """Whether the topic falls into it."""
        return topic.namespace_name == self.namespace and covers((self.lower, self.upper), hash_of(topic))

    def overlaps(self, other: Bundle) -> bool:
        """Whether a topic may fall into both."""
        return self.namespace == other.namespace and self.lower < other.upper and other.lower < self.upper

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range_name}"


def bundle_at(path: str, parent: str) -> Bundle | None:
    """The bundle that a path below `parent` is about; None: it is about none."""
    with contextlib.suppress(ValueError, InvalidNameError):  # of a namespace or a tenant
        return Bundle.parse(path.removeprefix(f"{parent}/"))
    return None
