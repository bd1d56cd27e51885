"""A session of a proxy whose sockets are written down."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.auth.identity import Credentials, Identity
from magnetar.base.clock import ManualClock
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.proxy.known_brokers import BrokerAddress, KnownBrokers
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.proxy.session import ProxySession
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import CommandEvent
from magnetar.wire.frames import parse_command

Type = pb.BaseCommand.Type


def command_of(frame: bytes) -> pb.BaseCommand:
    """The command of a simple frame."""
    return parse_command(frame[8:])[1]


async def _nobody(credentials: Credentials, peer: str) -> Identity:
    raise AssertionError("the test says what they prove")


class NotedLink:
    """A link to a broker."""

    def __init__(self, conversation: Conversation, target: BrokerAddress, introduction: bytes) -> None:
        self.target = target
        self.introduction = command_of(introduction).connect
        self._conversation = conversation

    def ask(self, frame: bytes) -> None:
        self._conversation.note(f"to {self.target}", frame)

    def end(self) -> None:
        self._conversation.log.append(f"link to {self.target} closed")


class Conversation:
    """One client of a proxy before the brokers a:6650, b:6650 and so on. `log` tells what it did."""

    def __init__(
        self,
        brokers: str = "a",
        *,
        authenticates: bool = False,
        forwards: bool = False,
        own: Credentials | None = None,
        lookups_max: int = 100,
        counts: Callable[[Identity], bool] | None = None,
    ) -> None:
        targets = KnownBrokers(tls=False)
        targets.replace(
            BrokerUrls(Addresses(f"pulsar://{name}:6650", http=f"http://{name}:80")) for name in brokers
        )
        self.clock = ManualClock()
        self.proxy = Proxy(
            ProxyOptions(forwards_credentials=forwards, lookups_max=lookups_max),
            targets,
            self.clock,
            identify=_nobody if authenticates else None,
            counts=counts,
            credentials=own,
        )
        self.log: list[str] = []
        self.behind: pb.BaseCommand | None = None
        """What the client has sent already, and is read when there is room."""
        self.links: list[NotedLink] = []
        self.introduction = pb.CommandConnect()
        self.session = ProxySession(self.proxy, self, peer="10.0.0.1:5")
        self.proxy.sessions.add(self.session)
        self.proxy.greetings.came(self.session)

    def note(self, who: str, frame: bytes) -> None:
        """Notes a frame that was sent."""
        command = command_of(frame)
        self.log.append(f"{who}: {_shown(command)}")

    # -- what the session asks for -----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.note("client", data)

    def close(self, reason: str) -> None:
        self.log.append(f"closed: {reason}")

    def abort(self, reason: str) -> None:
        self.log.append(f"dropped: {reason}")

    def read_on(self) -> None:
        if self.behind:
            waiting, self.behind = self.behind, None
            self.session.handle([CommandEvent(waiting.type, waiting)])

    def look(self, now_s: float) -> None:
        self.log.append("looks")

    def check(self, credentials: Credentials) -> None:
        self.log.append(f"check {credentials.method} {credentials.data.decode(errors='replace')}")

    def reach(self, target: BrokerAddress, introduction: bytes) -> None:
        self.introduction = command_of(introduction).connect
        self.log.append(f"reach {target}")

    def open_link(self, target: BrokerAddress, introduction: bytes) -> NotedLink:
        self.log.append(f"link to {target}")
        link = NotedLink(self, target, introduction)
        self.links.append(link)
        return link

    # -- what the test does ------------------------------------------------------------------------

    def says(self, command: pb.BaseCommand) -> list[str]:
        """The client sends a command; what the proxy did."""
        self.session.handle([CommandEvent(command.type, command)])
        return self.told()

    def answers(self, broker: str, command: pb.BaseCommand) -> list[str]:
        """A broker answers a question; what the proxy did."""
        assert self.session.lookups.answered(BrokerAddress(broker, 6650), command.type, command)
        return self.told()

    def loses(self, broker: str, code: pb.ServerError | None = None) -> list[str]:
        """A link is lost; what the proxy did."""
        self.session.lookups.lost(BrokerAddress(broker, 6650), "gone", code)
        return self.told()

    def told(self) -> list[str]:
        """What the proxy did since the last call."""
        self.session.check()
        told, self.log = self.log, []
        return told


def _shown(command: pb.BaseCommand) -> str:
    name = Type.Name(command.type)
    if command.type == Type.ERROR:
        return f"{name} {pb.ServerError.Name(command.error.error)}"
    if command.type == Type.LOOKUP:
        return (
            f"{name} {command.lookupTopic.request_id}{' authoritative' * command.lookupTopic.authoritative}"
        )
    if command.type == Type.LOOKUP_RESPONSE:
        answer = command.lookupTopicResponse
        if answer.response == pb.CommandLookupTopicResponse.Failed:
            return f"{name} {answer.request_id} {pb.ServerError.Name(answer.error)}"
        through = " through the proxy" * answer.proxy_through_service_url
        return f"{name} {answer.request_id} {answer.brokerServiceUrl}{through}"
    return name


def connect(**fields: object) -> pb.BaseCommand:
    """CONNECT."""
    body = pb.CommandConnect(client_version="test", protocol_version=20, **fields)  # type: ignore[arg-type]  # the test's
    return pb.BaseCommand(type=Type.CONNECT, connect=body)


def look_up(request_id: int) -> pb.BaseCommand:
    """LOOKUP."""
    body = pb.CommandLookupTopic(topic="persistent://public/default/t", request_id=request_id)
    return pb.BaseCommand(type=Type.LOOKUP, lookupTopic=body)


def placed(request_id: int, broker: str, *, redirect: bool = False) -> pb.BaseCommand:
    """LOOKUP_RESPONSE."""
    Answer = pb.CommandLookupTopicResponse  # noqa: N806  # a class
    body = Answer(
        request_id=request_id,
        brokerServiceUrl=f"pulsar://{broker}:6650",
        response=Answer.Redirect if redirect else Answer.Connect,
        authoritative=True,
    )
    return pb.BaseCommand(type=Type.LOOKUP_RESPONSE, lookupTopicResponse=body)
