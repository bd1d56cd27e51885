"""Questions of one client that the proxy asks brokers: look-ups, partitions, lists of topics, schemas (pure).

    asked        -> a broker gets the question, over a link that introduces this client
    redirected   -> the broker that the answer names gets it, if it is one of the cluster
    link lost    -> another broker gets it; nothing was changed by the first attempt
    answered     -> the client gets the answer, look-ups with the note to connect through the proxy

Request ids are the client's own, as each link carries the questions of one client only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.base.ids import RequestId
from magnetar.proxy.known_brokers import BrokerAddress, KnownBrokers
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command

Type = pb.BaseCommand.Type

IN_WORK_MAX: Final = 32
"""Questions of one client that are in work; further ones are not read until one is answered."""
_ATTEMPTS_MAX: Final = 3
"""Brokers that get a question, one after the other, when links are lost."""
_REDIRECTS_MAX: Final = 20
"""As in Pulsar's clients."""
ANSWER_S: Final = 60.0
"""Seconds for an answer. A broker holds look-ups open for up to 30 s while a bundle gets an owner."""
IDLE_S: Final = 60.0
"""Seconds after which a link without questions is closed."""

_FIELDS: Final[dict[int, str]] = {
    Type.LOOKUP: "lookupTopic",
    Type.PARTITIONED_METADATA: "partitionMetadata",
    Type.GET_TOPICS_OF_NAMESPACE: "getTopicsOfNamespace",
    Type.GET_SCHEMA: "getSchema",
}
QUESTIONS: Final = frozenset(_FIELDS)
"""Commands that the proxy answers itself."""
_FOR_WHOM: Final = ("original_principal", "original_auth_data", "original_auth_method")
_ANSWERS: Final[dict[int, str]] = {
    Type.LOOKUP_RESPONSE: "lookupTopicResponse",
    Type.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    Type.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    Type.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    Type.ERROR: "error",
}
_ASKED_BY: Final[dict[int, int]] = {
    Type.LOOKUP_RESPONSE: Type.LOOKUP,
    Type.PARTITIONED_METADATA_RESPONSE: Type.PARTITIONED_METADATA,
    Type.GET_TOPICS_OF_NAMESPACE_RESPONSE: Type.GET_TOPICS_OF_NAMESPACE,
    Type.GET_SCHEMA_RESPONSE: Type.GET_SCHEMA,
}
"""The question of each answer; an error answers any."""
UNREACHED: Final = pb.ServerError.ServiceNotReady
"""Clients try again after this code."""


def speaks_for_another(kind: int, command: pb.BaseCommand) -> bool:
    """Whether a question names the role that it is asked for, as only proxies may."""
    if kind not in (Type.LOOKUP, Type.PARTITIONED_METADATA):
        return False
    body = getattr(command, _FIELDS[kind])
    return any(getattr(body, name) for name in _FOR_WHOM)


class Link(Protocol):
    """A connection to a broker for questions of one client."""

    def ask(self, frame: bytes) -> None:
        """Sends a question, now or once the connection is open."""

    def end(self) -> None:
        """Closes the connection; nothing is told of it afterwards."""


class Asker(Protocol):
    """What questions need of the client's session."""

    @property
    def targets(self) -> KnownBrokers:
        """The brokers."""

    def reply(self, frame: bytes) -> None:
        """Sends the client an answer."""

    def open_link(self, target: BrokerAddress) -> Link:
        """Begins to connect to a broker."""

    def now_s(self) -> float:
        """Seconds of the clock by which `look` is called."""

    def take_place(self) -> bool:
        """Counts one more question; returns False when there are too many."""

    def give_place_back(self) -> None:
        """A question that was counted is answered."""


@dataclass(slots=True)
class _Question:
    kind: int
    command: pb.BaseCommand
    since_s: float
    target: BrokerAddress | None = None
    tried: list[BrokerAddress] = field(default_factory=list)
    redirects: int = 0


@dataclass(slots=True)
class _Open:
    link: Link
    questions: set[RequestId] = field(default_factory=set)
    used_s: float = 0.0


class Lookups:
    """The questions of one client, and its links."""

    __slots__ = ("_asker", "_links", "_questions")

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._questions: dict[RequestId, _Question] = {}
        self._links: dict[BrokerAddress, _Open] = {}

    def __len__(self) -> int:
        """Questions in work."""
        return len(self._questions)

    # -- of the client -----------------------------------------------------------------------------

    def ask(self, kind: int, command: pb.BaseCommand) -> str:
        """Takes a question. Returns why the client's connection must be closed, "" if it need not."""
        request_id = RequestId(getattr(command, _FIELDS[kind]).request_id)
        if request_id in self._questions:
            return f"two requests with the id {request_id}"
        if not self._asker.take_place():
            self._refuse(kind, request_id, pb.ServerError.TooManyRequests, "too many look-ups at the proxy")
            return ""
        question = self._questions[request_id] = _Question(kind, command, self._asker.now_s())
        # An open link serves, else each broker gets a part of the clients.
        target = next(iter(self._links), None)
        self._send(request_id, question, target or self._asker.targets.pick())
        return ""

    def close(self) -> None:
        """The client is gone."""
        for request_id in list(self._questions):
            self._forget(request_id)
        self.end_links()

    def end_links(self) -> None:
        """Closes all links, which introduce the client with credentials that do not count any more. There
        must be no questions."""
        assert not self._questions, "they would never be answered"
        for each in self._links.values():
            each.link.end()
        self._links.clear()

    def look(self, now_s: float) -> None:
        """Ends what takes too long; called every second or so."""
        # A question that ends lets the next command in, which may end the connection and all others with it.
        for request_id, question in list(self._questions.items()):
            if self._questions.get(request_id) is question and now_s - question.since_s > ANSWER_S:
                self._fail(request_id, UNREACHED, f"no answer of broker {question.target}")
        for target, each in list(self._links.items()):
            if each.questions:
                each.used_s = now_s
            elif now_s - each.used_s > IDLE_S:
                del self._links[target]
                each.link.end()

    # -- of links ----------------------------------------------------------------------------------

    def answered(self, target: BrokerAddress, kind: int, command: pb.BaseCommand) -> bool:
        """A broker has sent this command; False: it does not answer a question."""
        name = _ANSWERS.get(kind)
        if name is None:
            return False
        body = getattr(command, name)
        request_id = RequestId(body.request_id)
        link = self._links.get(target)
        if link is None or request_id not in link.questions:
            # Its question was answered by the clock.
            return kind != Type.ERROR
        question = self._questions[request_id]
        if kind != Type.ERROR and question.kind != _ASKED_BY[kind]:
            # As it is, the answer to a look-up would lead the client around the proxy.
            return False
        if kind == Type.LOOKUP_RESPONSE:
            self._placed(request_id, question, body)
        else:
            self._forget(request_id)
            self._asker.reply(encode_command(command))
        return True

    def lost(self, target: BrokerAddress, reason: str, code: pb.ServerError | None = None) -> None:
        """A link is closed, or could not be opened. `code`: the broker refused the client itself, and others
        would, too."""
        link = self._links.pop(target, None)
        if link is None:
            return
        for request_id in list(link.questions):
            question = self._questions.get(request_id)
            if question is None:
                # The place of one that failed let a command in that has ended the connection.
                return
            question.tried.append(target)
            if code is not None:
                self._fail(request_id, code, reason)
            elif len(question.tried) >= _ATTEMPTS_MAX:
                self._fail(request_id, UNREACHED, reason)
            else:
                self._send(request_id, question, self._asker.targets.pick(question.tried), reason)

    # -- both --------------------------------------------------------------------------------------

    def _send(
        self, request_id: RequestId, question: _Question, target: BrokerAddress | None, reason: str = ""
    ) -> None:
        if target is None:
            self._fail(request_id, UNREACHED, reason or "no broker of the cluster is known to the proxy")
            return
        question.target = target
        each = self._links.get(target)
        if each is None:
            each = self._links[target] = _Open(self._asker.open_link(target))
        each.used_s = self._asker.now_s()
        each.questions.add(request_id)
        each.link.ask(encode_command(question.command))

    def _placed(
        self, request_id: RequestId, question: _Question, body: pb.CommandLookupTopicResponse
    ) -> None:
        """A broker has answered a look-up."""
        if body.response == pb.CommandLookupTopicResponse.Failed:
            self._forget(request_id)
            self._asker.reply(
                encode_command(pb.BaseCommand(type=Type.LOOKUP_RESPONSE, lookupTopicResponse=body))
            )
            return
        targets = self._asker.targets
        url = body.brokerServiceUrlTls if targets.tls else body.brokerServiceUrl
        target = targets.find(url)
        if target is None:
            # It has joined just now, or it is not for the proxy: the client asks again.
            self._fail(request_id, UNREACHED, f"the proxy does not know the topic's broker, {url[:200]!r}")
        elif body.response == pb.CommandLookupTopicResponse.Connect:
            self._forget(request_id)
            self._asker.reply(
                commands.lookup_response(
                    request_id,
                    f"pulsar://{target}",
                    service_url_tls=f"pulsar+ssl://{target}",
                    through_service_url=True,
                )
            )
        elif question.redirects >= _REDIRECTS_MAX:
            self._fail(request_id, UNREACHED, "brokers redirect a look-up too often")
        else:
            question.redirects += 1
            assert question.target is not None, "a broker has answered"
            self._links[question.target].questions.discard(request_id)
            question.command.lookupTopic.authoritative = body.authoritative
            self._send(request_id, question, target)

    def _fail(self, request_id: RequestId, code: pb.ServerError, reason: str) -> None:
        kind = self._questions[request_id].kind
        self._forget(request_id)
        self._refuse(kind, request_id, code, reason)

    def _refuse(self, kind: int, request_id: RequestId, code: pb.ServerError, reason: str) -> None:
        if kind == Type.LOOKUP:
            frame = commands.lookup_error(request_id, code, reason)
        elif kind == Type.PARTITIONED_METADATA:
            frame = commands.partitions_error(request_id, code, reason)
        elif kind == Type.GET_SCHEMA:
            frame = commands.schema_error(request_id, code, reason)
        else:
            frame = commands.error(request_id, code, reason)
        self._asker.reply(frame)

    def _forget(self, request_id: RequestId) -> None:
        question = self._questions.pop(request_id)
        link = None if question.target is None else self._links.get(question.target)
        if link is not None:
            link.questions.discard(request_id)
        self._asker.give_place_back()

    def check(self) -> None:
        """Asserts what must always hold."""
        for target, each in self._links.items():
            for request_id in each.questions:
                assert self._questions[request_id].target == target, "a question of another link"
        asked = [request_id for each in self._links.values() for request_id in each.questions]
        assert sorted(asked) == sorted(self._questions), "each question is at one broker"
