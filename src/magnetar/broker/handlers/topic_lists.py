"""Lists of topics: asked for once, or watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import RequestId
from magnetar.base.names import NamespaceName
from magnetar.broker import guard as guards
from magnetar.broker import lookup
from magnetar.broker.errors import wire_code
from magnetar.broker.handlers import permission
from magnetar.broker.watchers.watched import Update
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort, Handler, SessionPort

Command = pb.BaseCommand


@dataclass(frozen=True, slots=True)
class _Listener:
    """A session as the room of watchers sees it; listeners of one session are equal."""

    session: SessionPort

    def ask_output(self) -> bool:
        return self.session.ask_output()

    def watching(self, request_id: RequestId, watcher_id: int, topics: list[str], digest: str) -> None:
        self.session.reply(commands.watch_topic_list_success(request_id, watcher_id, topics, digest))

    def watching_failed(self, request_id: RequestId, error: MagnetarError) -> None:
        self.session.reply(commands.error(request_id, wire_code(error), str(error)))

    def topics_changed(self, watcher_id: int, update: Update) -> None:
        self.session.reply(commands.watch_topic_update(watcher_id, update.new, update.deleted, update.digest))


def topics_of_namespace(session: SessionPort, command: Command) -> None:
    request = command.getTopicsOfNamespace

    async def answer() -> None:
        await permission.allow_namespace(session, Action.LOOKUP, NamespaceName.parse(request.namespace))
        found = await lookup.topics_of_namespace(session.broker, request)
        session.reply(
            commands.topics_of_namespace(
                request.request_id,
                found.topics,
                filtered=found.filtered,
                topics_hash=found.digest,
                changed=found.changed,
            )
        )

    session.requests.run_simple(request, answer(), large=True)


def watch(session: SessionPort, command: Command) -> None:
    request = command.watchTopicList

    async def begin() -> None:
        namespace = NamespaceName.parse(request.namespace)
        await permission.allow_namespace(session, Action.LOOKUP, namespace)
        if not session.closed:
            session.broker.watchers.watch(
                _Listener(session),
                namespace,
                request.topics_pattern,
                watcher_id=request.watcher_id,
                request_id=request.request_id,
                known_digest=request.topics_hash,
            )

    session.requests.run_simple(request, begin())


def close(session: SessionPort, command: Command) -> None:
    request = command.watchTopicListClose
    session.broker.watchers.close(_Listener(session), request.watcher_id)
    session.reply(commands.success(request.request_id))


async def recheck(broker: BrokerPort) -> None:
    """Ends watches that their clients may not have any more, after policies changed.

    The client is not told: the protocol has no word for it.
    """
    guard = broker.guard
    if guard is None:
        return
    for session in list(broker.sessions):
        identity, listener = session.identity, _Listener(session)
        if identity is None or guard.is_superuser(identity):
            continue
        for watcher_id, namespace in broker.watchers.watches_of(listener).items():
            if not await guard.may_namespace(identity, Action.LOOKUP, namespace):
                guards.revoked(identity, session.peer, Action.LOOKUP, str(namespace))
                broker.watchers.close(listener, watcher_id)


def has_room(session: SessionPort) -> None:
    """The connection accepts bytes again: watches continue."""
    session.broker.watchers.resume(_Listener(session))


def forget(session: SessionPort) -> None:
    """The connection is closed: no client is told any more."""
    session.broker.watchers.leave(_Listener(session))


HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: topics_of_namespace,
    pb.BaseCommand.WATCH_TOPIC_LIST: watch,
    pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE: close,
}
