"""A topic's part in a transaction whose coordinator may be at another broker, and its stored value (pure).

    {"e": version of the topic's log when its owner wrote this, "o": name of that owner's process,
     "p": [ledger, entry] of the topic's last entry before its first one of the transaction,
     "a": {subscription: acknowledgements, see acks.py},
     "c": 1: it takes nothing more, and all that it took is durable; 0: the same, but something was lost}

    (empty) ── claim ──▶ taking ── header closes ──▶ closing ── durable ──▶ closed
                           └────── header decided ─────┴──────────────────┴──▶ applied ── durable ──▶ (gone)

The coordinator makes it, with the header and empty, before any client is told that it may use the topic in
the transaction. From then on only the topic's owner writes and deletes it. It is gone when what was decided
is durable in the topic; the header stays until all parts are gone.
"""

from __future__ import annotations

import json
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.ids import Position
from magnetar.broker.transactions.acks import TxnAcks, position_of
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.transaction import Transaction, acks_of_stored

NO_EPOCH: Final = -1
"""The epoch of a part that no owner has claimed."""


class InvalidPartError(MetadataError):
    """The bytes are not a part."""


class TopicPart:
    """A stored part."""

    __slots__ = ("acks", "durable", "epoch", "last", "owner")

    epoch: int
    owner: str
    last: Position | None
    acks: dict[str, TxnAcks]
    durable: bool | None
    """Whether all that the topic took is durable; None: it may take more."""

    def __init__(self) -> None:
        self.epoch, self.owner, self.last, self.durable = NO_EPOCH, "", None, None
        self.acks = {}

    @classmethod
    def read(cls, data: bytes, path: str) -> TopicPart:
        """Raises InvalidPartError. `path`: of the value, which ends with the numbers of the transaction."""
        part = cls()
        try:
            document = json.loads(data)
            part.epoch, part.owner = document.get("e", NO_EPOCH), document.get("o", "")
            if type(part.epoch) is not int or type(part.owner) is not str:
                raise ValueError("the epoch is a number, the owner a text")
            if "p" in document:
                part.last = position_of(document["p"])
            part.acks = acks_of_stored({"": document.get("a", {})})[""]
            if "c" in document:
                part.durable = bool(document["c"])
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            numbers = path.rpartition("/")[2].replace("-", " ")
            raise InvalidPartError(
                f"{path} in the metadata cannot be used ({error!r}): what the topic took of the transaction"
                " is not known. Restore the value from a backup, or give the transaction up with `magnetar"
                f" transactions abort {numbers}`"
            ) from error
        return part


class Mirror(Transaction):
    """The same as the topic's owner has it: the transaction, as far as it concerns this topic.

    `version`, `revision` and `saved` are those of the part; state, owner and names are of the header.
    """

    __slots__ = ("durable", "epoch", "header_version", "holder", "last", "looked_ms", "topic")

    def __init__(self, id: TxnId, topic: str, *, epoch: int, holder: str) -> None:  # noqa: A002
        super().__init__(id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        self.topic = topic
        self.epoch = epoch
        self.holder = holder
        """Name of this process."""
        self.last: Position | None = None
        self.durable: bool | None = None
        self.header_version = 0
        """The version that the header had when it was read last."""
        self.looked_ms = 0.0
        """When its header was read last."""

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more, not even what came before the topic heard that it is to close."""
        return self.state is not TxnState.OPEN or self.durable is not None

    def may_hold(self, part: TopicPart) -> bool:
        """Whether a part is this owner's, or one of a former owner of the topic."""
        return part.epoch < self.epoch or (part.epoch == self.epoch and part.owner in ("", self.holder))

    def take(self, part: TopicPart) -> None:
        """What an earlier owner left in it."""
        self.last, self.durable = part.last or self.last, part.durable
        if part.acks:
            self.acks = {self.topic: part.acks}

    def follow(self, header: Transaction) -> None:
        """The header was read."""
        self.state, self.owner, self.ttl_ms = header.state, header.owner, header.ttl_ms
        self.started_ms, self.reason = header.started_ms, header.reason
        self.closing = self.closing or header.closing
        if self.topic in header.partitions and not self.registered:
            self.partitions = {self.topic: self.last}
            self.registered = frozenset(self.partitions)
        named = header.acks.get(self.topic, ())
        if named:
            known = self.acks.setdefault(self.topic, {})
            for subscription in named:
                known.setdefault(subscription, TxnAcks())

    def part(self) -> bytes:
        """Its stored form."""
        document: dict[str, object] = {"e": self.epoch, "o": self.holder}
        if self.last is not None:
            document["p"] = [*self.last]
        acks = {name: acks.stored() for name, acks in self.acks.get(self.topic, {}).items() if len(acks)}
        if acks:
            document["a"] = acks
        if self.durable is not None:
            document["c"] = int(self.durable)
        return json.dumps(document, separators=(",", ":")).encode()
