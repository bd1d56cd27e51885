"""Names of topics and namespaces: text to values and back.

    topic      domain "://" tenant "/" namespace "/" local [ "-partition-" N ]
    domain     "persistent" | "non-persistent"
    tenant, namespace   one or more of  A-Z a-z 0-9 _ - = : .   but neither "." nor ".."
    local      any characters except "/", not blank, neither "." nor ".."

Short forms: `local` stands for `persistent://public/default/local`, and `tenant/namespace/local` for the
persistent topic of that name. Old names with a cluster as a fourth part are refused.

Source: Pulsar's topic grammar; names are kept in metadata keys as Java's URLEncoder writes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from magnetar.base.errors import MagnetarError

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
DEFAULT_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
PARTITION_SUFFIX: Final = "-partition-"
PARTITION_MAX: Final = (1 << 31) - 1
"""Partitions are signed 32-bit numbers in the protocol."""

STEPS: Final = (".", "..")
"""Texts that are not allowed as names: they would change a path, and stores such as ZooKeeper refuse them."""

_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)

TOPIC_CHARS_MAX: Final = 4_096
"""Most characters of a topic's full name, and of its own name."""

_KNOWN_NAMES: Final = 2_048
"""Most names whose parts are cached, about a megabyte: opening a topic parses its name three times and makes
a dozen keys from it."""
_REMEMBERED_CHARS_MAX: Final = 256
"""Most characters of a cached name: a client that sends many long names must not fill the memory."""
_SHOWN_CHARS_MAX: Final = 200
"""Most characters of a wrong name that an error shows."""


class InvalidNameError(MagnetarError):
    """The text is not a legal name. The message names the text and the rule."""

    def __init__(self, text: str, rule: str) -> None:
        shown = text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
        super().__init__(f"invalid {self._kind} {shown!r}: {rule}")
        self.text = text
        self.rule = rule

    _kind = "name"


class InvalidTopicNameError(InvalidNameError):
    """The text is not a topic name."""

    _kind = "topic name"


class InvalidNamespaceNameError(InvalidNameError):
    """The text is not a namespace name."""

    _kind = "namespace name"


def encode_local(local: str) -> str:
    """Percent-encodes UTF-8 exactly as Java's URLEncoder: space is "+", only `A-Za-z0-9.-*_` stay."""
    return _encoded_before(local) if len(local) <= _REMEMBERED_CHARS_MAX else _encoded(local)


def _encoded(local: str) -> str:
    return quote_plus(local, safe="*").replace("~", "%7E")


_encoded_before = lru_cache(_KNOWN_NAMES)(_encoded)


def decode_local(encoded: str) -> str:
    """The inverse of `encode_local`."""
    return unquote_plus(encoded)


def is_entity_name(text: str) -> bool:
    """Whether `text` may name a tenant, a namespace or a cluster."""
    return _ENTITY.fullmatch(text) is not None and text not in STEPS


def partition_of(local: str) -> int:
    """The partition number at the end of a local name; -1 when the name is not a partition's.

    Only a decimal number without sign and leading zeros counts: `t-partition-01` and `t-partition--1` are
    plain names.
    """
    head, separator, digits = local.rpartition(PARTITION_SUFFIX)
    if not separator or not head or not (digits.isascii() and digits.isdigit()):
        return -1
    if len(digits) > 10 or (digits[0] == "0" and digits != "0"):
        return -1
    number = int(digits)
    return number if number <= PARTITION_MAX else -1


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """A namespace of a tenant; `str` gives `tenant/namespace`."""

    tenant: str
    namespace: str

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Reads `tenant/namespace`. Raises InvalidNamespaceNameError."""
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidNamespaceNameError(text, "expected tenant/namespace")
        for part in parts:
            if not is_entity_name(part):
                raise InvalidNamespaceNameError(
                    text, f"{part[:_SHOWN_CHARS_MAX]!r} holds other than letters, digits, _-=:."
                )
        return cls(parts[0], parts[1])

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@lru_cache(_KNOWN_NAMES)
def _namespace(tenant: str, namespace: str) -> NamespaceName:
    return NamespaceName(tenant, namespace)


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic or one partition of a topic; `str` gives its full name. Use `parse` to make one."""

    domain: str
    """PERSISTENT or NON_PERSISTENT."""
    tenant: str
    namespace: str
    local: str
    """Own name of the topic as users write it, not encoded; with the suffix of a partition."""
    partition: int
    """Number of the partition, >= 0; -1 when the name is not a partition's."""

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Reads a full or a short name. Raises InvalidTopicNameError."""
        if len(text) <= _REMEMBERED_CHARS_MAX:
            return cls._parsed_before(text)
        if len(text) > TOPIC_CHARS_MAX:
            raise InvalidTopicNameError(text, f"it has more than {TOPIC_CHARS_MAX} characters")
        return cls._parsed(text)

    @classmethod
    @lru_cache(_KNOWN_NAMES)
    def _parsed_before(cls, text: str) -> TopicName:
        return cls._parsed(text)

    @classmethod
    def _parsed(cls, text: str) -> TopicName:
        domain, separator, rest = text.partition("://")
        if not separator:
            parts = text.split("/")
            if len(parts) == 1:
                return cls.of(PERSISTENT, DEFAULT_TENANT, DEFAULT_NAMESPACE, text)
            if len(parts) != 3:
                raise InvalidTopicNameError(text, "a short name is `topic` or `tenant/namespace/topic`")
            return cls.of(PERSISTENT, *parts)
        parts = rest.split("/")
        if len(parts) != 3:
            raise InvalidTopicNameError(text, "expected domain://tenant/namespace/topic")
        return cls.of(domain, *parts)

    @classmethod
    def of(cls, domain: str, tenant: str, namespace: str, local: str) -> TopicName:
        """A name from its parts, `local` not encoded. Raises InvalidTopicNameError."""
        text = f"{domain}://{tenant}/{namespace}/{local}"
        if domain not in (PERSISTENT, NON_PERSISTENT):
            raise InvalidTopicNameError(text, f"the domain must be {PERSISTENT} or {NON_PERSISTENT}")
        if len(text) > TOPIC_CHARS_MAX:
            raise InvalidTopicNameError(text, f"it has more than {TOPIC_CHARS_MAX} characters")
        for part in (tenant, namespace):
            if not is_entity_name(part):
                raise InvalidTopicNameError(
                    text, f"{part[:_SHOWN_CHARS_MAX]!r} holds other than letters, digits, _-=:."
                )
        if not local.strip():
            raise InvalidTopicNameError(text, "the topic's own name is blank")
        if local in STEPS:
            raise InvalidTopicNameError(text, "the topic's own name is a step of a path")
        if "/" in local:
            raise InvalidTopicNameError(text, "the topic's own name holds a slash")
        try:
            local.encode()
        except UnicodeEncodeError:
            # A lone surrogate has no UTF-8 form, so it could be neither stored nor sent.
            raise InvalidTopicNameError(text, "the topic's own name is not Unicode text") from None
        return cls(domain, tenant, namespace, local, partition_of(local))

    @classmethod
    def from_log_name(cls, log_name: str) -> TopicName:
        """The inverse of `log_name`. Raises InvalidTopicNameError."""
        parts = log_name.split("/")
        if len(parts) != 4:
            raise InvalidTopicNameError(log_name, "expected tenant/namespace/domain/topic")
        tenant, namespace, domain, encoded = parts
        return cls.of(domain, tenant, namespace, decode_local(encoded))

    @classmethod
    def stored(cls, domain: str, namespace: NamespaceName, encoded: str) -> TopicName:
        """The topic for a stored metadata key; the name is not checked again."""
        local = decode_local(encoded)
        return cls(domain, namespace.tenant, namespace.namespace, local, partition_of(local))

    @property
    def persistent(self) -> bool:
        """Whether the topic stores its messages on disk."""
        return self.domain == PERSISTENT

    @property
    def namespace_name(self) -> NamespaceName:
        """The namespace that the topic belongs to."""
        if len(self.tenant) + len(self.namespace) > _REMEMBERED_CHARS_MAX:
            return NamespaceName(self.tenant, self.namespace)
        return _namespace(self.tenant, self.namespace)

    @property
    def base(self) -> TopicName:
        """The name without the partition's suffix; returns itself when there is none."""
        if self.partition < 0:
            return self
        local = self.local.rpartition(PARTITION_SUFFIX)[0]
        # `a-partition-0-partition-1` is partition 1 of a topic whose own name looks like a partition.
        return TopicName(self.domain, self.tenant, self.namespace, local, partition_of(local))

    def with_partition(self, index: int) -> TopicName:
        """The name of partition `index`, 0 <= index <= PARTITION_MAX, of this topic."""
        assert 0 <= index <= PARTITION_MAX
        local = f"{self.local}{PARTITION_SUFFIX}{index}"
        return TopicName(self.domain, self.tenant, self.namespace, local, index)

    @property
    def encoded_local(self) -> str:
        """The local name as encoded in metadata keys and HTTP paths."""
        return encode_local(self.local)

    @property
    def log_name(self) -> str:
        """Name of the topic's managed log: `tenant/namespace/domain/<encoded local name>`."""
        return f"{self.tenant}/{self.namespace}/{self.domain}/{self.encoded_local}"

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"
