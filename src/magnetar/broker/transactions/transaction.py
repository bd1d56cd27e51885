"""One transaction, and its header: the value in the metadata store that decides it (pure).

    {"s": state, "o": owner, "t": begun, Unix ms, "l": time to live, ms, "r": why it was aborted,
     "p": {topic: [ledger, entry] of the topic's last entry when it was added, [] where that is not known},
     "n": {topic: as the client named it},
     "a": {topic: {subscription: acknowledgements, see acks.py}},
     "e": 1 once topics of several brokers were told to take nothing more, and to say whether all is durable}

Everything else about it follows from the header. It is written before what it names happens: a topic stands
in it before the topic takes a message of the transaction, acknowledgements before they are answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.ids import Position
from magnetar.base.names import InvalidNameError, TopicName
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.transactions.acks import STORED_MAX, TxnAcks, position_of
from magnetar.broker.transactions.ids import TxnId, TxnState

HEADER_BYTES_MAX: Final = 512 * 1024
"""Bytes of a header: half of what ZooKeeper accepts for a value."""


MISSING_MAX: Final = 10_000
"""Dropped messages that are remembered; a transaction with more of them cannot commit."""
_TIME_END_MS: Final = 1 << 62
"""No stored time is as late, nor a time to live as long: sums of two are 63 bits."""
POSITION_BYTES: Final = 64
"""Upper bound of the bytes of a position in it, or of a run of entries."""


def text_bytes(text: str) -> int:
    """Upper bound of a text's bytes in a header."""
    return len(json.dumps(text)) + 4


class InvalidHeaderError(MetadataError):
    """The bytes are not a header."""


class Transaction:
    """A coordinator's record of a transaction."""

    __slots__ = (
        "acks",
        "closing",
        "deadline_ms",
        "doubtful",
        "ending",
        "id",
        "lost",
        "messages",
        "missing",
        "names",
        "owner",
        "partitions",
        "reason",
        "registered",
        "revision",
        "saved",
        "size_bytes",
        "started_ms",
        "state",
        "ttl_ms",
        "unresolved",
        "verdict",
        "version",
    )

    id: TxnId
    owner: str
    """Role that began it; "" without authentication. Other roles may not use it."""
    ttl_ms: int
    started_ms: int
    """Unix ms."""
    deadline_ms: float
    """When it is aborted, on the clock that only runs."""
    state: TxnState
    """As durable; OPEN until the decision is."""
    ending: TxnState | None
    """What it is to become, from the END_TXN on: nothing is added any more."""
    closing: bool
    """Whether topics of several brokers were told, durably or soon, to take nothing more: it is to commit."""
    verdict: TxnState | None
    """The decision, once all its contents are durable: the next write of the header stores it, which
    decides."""
    reason: str
    """Why it was aborted."""
    partitions: dict[str, Position | None]
    """Topics that may hold its messages, by full name, with their last entry then; None: not known."""
    acks: dict[str, dict[str, TxnAcks]]
    """By topic and subscription."""
    names: dict[str, str]
    """How the client named topics, where that is not the full name; for statistics."""
    registered: frozenset[str]
    """Topics in the durable header: these accept messages."""
    messages: int
    """Entries that topics accepted."""
    missing: set[tuple[str, str, int]]
    """Messages that their topic dropped while it was unloaded, by topic, producer and sequence number: their
    client sends them again."""
    lost: bool
    """Whether a message that a topic accepted never became durable."""
    revision: int
    """One more at each change."""
    saved: int
    """The revision that is durable."""
    size_bytes: int
    """Upper bound of the header's bytes."""
    version: int | None
    """Version of the header in the store; None: it is not there."""
    doubtful: bool
    """Whether the last write may have taken effect or not: the store is asked before the next one."""
    unresolved: set[str]
    """Topics that have not made durable what the decision means for them."""

    def __init__(self, id: TxnId, *, owner: str, ttl_ms: int, started_ms: int, deadline_ms: float) -> None:  # noqa: A002
        self.id = id
        self.owner = owner
        self.ttl_ms = ttl_ms
        self.started_ms = started_ms
        self.deadline_ms = deadline_ms
        self.state = TxnState.OPEN
        self.ending = self.verdict = None
        self.closing = False
        self.reason = ""
        self.partitions = {}
        self.acks = {}
        self.names = {}
        self.registered = frozenset()
        self.messages = 0
        self.missing = set()
        self.lost = False
        self.revision = 1
        self.saved = 0
        self.size_bytes = 200 + text_bytes(owner)
        self.version = None
        self.doubtful = False
        self.unresolved = set()

    def __repr__(self) -> str:
        saved = f"{self.saved}/{self.revision}"
        return f"Transaction{self.id}({self.state.value}, ending={self.ending}, saved={saved})"

    @property
    def topics(self) -> set[str]:
        """All that it concerns."""
        return {*self.partitions, *self.acks}

    def age_ms(self, now_ms: float) -> float:
        """Milliseconds since it began, on the monotonic clock; as far as this process knows."""
        return now_ms - (self.deadline_ms - self.ttl_ms)

    def grow(self, size_bytes: int) -> None:
        """Reserves space in the header. Raises NotAllowedError, with nothing changed."""
        if self.size_bytes + size_bytes > HEADER_BYTES_MAX:
            raise NotAllowedError(
                f"transaction {self.id} concerns too much: {HEADER_BYTES_MAX} bytes of names"
            )
        self.size_bytes += size_bytes

    def missed(self, topic: str, producer: str, sequence_ids: Iterable[int]) -> None:
        """The topic dropped these messages; see `missing`."""
        self.missing.update((topic, producer, each) for each in sequence_ids)
        if len(self.missing) > MISSING_MAX:
            self.lost, self.missing = True, set()

    def found(self, topic: str, producer: str, sequence_ids: Iterable[int]) -> None:
        """They were sent again."""
        self.missing.difference_update([(topic, producer, each) for each in sequence_ids])

    def changed(self) -> int:
        """Notes a change; the revision that is to become durable."""
        self.revision += 1
        return self.revision

    def header(self, *, parts: bool = False) -> bytes:
        """As it is to be; with `verdict`, decided. `parts`: topics keep what they acknowledge themselves."""
        fields = [
            f'{{"s":"{(self.verdict or self.state).value}","o":{_text(self.owner)}',
            f'"t":{self.started_ms},"l":{self.ttl_ms}',
        ]
        if self.reason:
            fields.append(f'"r":{_text(self.reason)}')
        if self.closing:
            fields.append('"e":1')
        if self.partitions:
            lasts = [f"{_text(name)}:{_place(last)}" for name, last in self.partitions.items()]
            fields.append(f'"p":{{{",".join(lasts)}}}')
        # Where it is aborted, nothing else is needed to take it back.
        if self.verdict is not TxnState.ABORTED:
            if self.names:
                # By hand: the encoder takes as long for a dictionary as all else here together.
                names = [f"{_text(name)}:{_text(named)}" for name, named in self.names.items()]
                fields.append(f'"n":{{{",".join(names)}}}')
            if self.acks:
                acks = {
                    topic: {name: acks.stored() for name, acks in subscriptions.items()}
                    for topic, subscriptions in self.acks.items()
                }
                fields.append(f'"a":{_ENCODER(acks)}')
        elif parts and self.acks:
            # A later coordinator waits for the parts of these topics, too, before the header goes.
            named: dict[str, dict[str, dict[str, object]]] = {
                topic: {name: {} for name in subscriptions} for topic, subscriptions in self.acks.items()
            }
            fields.append(f'"a":{_ENCODER(named)}')
        return f"{','.join(fields)}}}".encode()

    def header_without(self, topic: str, subscription: str) -> bytes:
        """The same without the acknowledgements of a subscription, which stay here."""
        acks = self.acks
        rest = {name: each for name, each in acks[topic].items() if name != subscription}
        try:
            self.acks = {**acks, topic: rest}
            return self.header()
        finally:
            self.acks = acks

    def read(self, header: bytes, version: int) -> None:
        """Restores the state from a stored header. Raises InvalidHeaderError."""
        try:
            document = json.loads(header)
            self.state = TxnState(document["s"])
            self.owner, self.started_ms, self.ttl_ms = document["o"], document["t"], document["l"]
            self.reason, self.names = document.get("r", ""), document.get("n", {})
            self.closing = bool(document.get("e"))
            self.partitions = {
                name: position_of(last) if last else None for name, last in document.get("p", {}).items()
            }
            self.acks = acks_of_stored(document.get("a", {}))
            if not (type(self.started_ms) is type(self.ttl_ms) is int):
                raise ValueError("times are numbers")
            if not (0 <= self.ttl_ms < _TIME_END_MS and abs(self.started_ms) < _TIME_END_MS):
                raise ValueError("times are numbers from 0 that a clock may have")
            if not all(isinstance(text, str) for text in (self.owner, self.reason, *self.names.values())):
                raise ValueError("owner, reason and names are texts")
            if any(str(TopicName.parse(name)) != name for name in self.topics):
                raise ValueError("topics have full names")
        except (AttributeError, InvalidNameError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InvalidHeaderError(f"header of transaction {self.id}: {error!r}") from error
        self.ending = self.verdict = None
        self.registered = frozenset(self.partitions)
        self.saved, self.version, self.doubtful = self.revision, version, False
        self.size_bytes = len(header) + 200

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.saved <= self.revision
        assert self.registered <= self.partitions.keys(), "a topic takes messages that no header names"
        assert self.state is not TxnState.OPEN or not self.unresolved
        assert self.ending is not TxnState.OPEN
        assert self.verdict is None or self.verdict is self.ending
        assert self.unresolved <= self.topics


_ENCODER: Final[Callable[[object], str]] = json.JSONEncoder(separators=(",", ":")).encode
_text: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii
"""A header is written for each step of a transaction: an encoder made anew takes half of that time."""


def acks_of_stored(document: dict[str, dict[str, dict[str, object]]]) -> dict[str, dict[str, TxnAcks]]:
    """Stored acknowledgements, bounded over all subscriptions. Raises what `TxnAcks.of_stored` raises."""
    found: dict[str, dict[str, TxnAcks]] = {}
    left = STORED_MAX
    for topic, subscriptions in document.items():
        of_topic = found[topic] = {}
        for name, stored in subscriptions.items():
            of_topic[name] = TxnAcks.of_stored(stored, left)
            left -= len(of_topic[name])
    return found


def _place(last: Position | None) -> str:
    return "[]" if last is None else f"[{last.ledger_id},{last.entry_id}]"
