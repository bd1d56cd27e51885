"""LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.handlers import permission, topic_lists
from magnetar.broker.transactions.discovery import names_coordinators
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ownership.place import TopicPlace
    from magnetar.broker.ports import Handler, SessionPort

Command = pb.BaseCommand


def partitions(session: SessionPort, command: Command) -> None:
    request = command.partitionMetadata

    async def answer() -> None:
        topic = TopicName.parse(request.topic)
        if names_coordinators(topic) and session.broker.transactions.enabled:
            count = await session.broker.transactions.discovery.partitions(topic)
            session.reply(commands.partitions(request.request_id, count))
            return
        await permission.allow_for(session, Action.LOOKUP, topic, request.original_principal)
        count = await lookup.partitions(
            session.broker, request.topic, may_come=request.metadata_auto_creation_enabled
        )
        session.reply(commands.partitions(request.request_id, count))

    session.requests.run(
        request,
        answer(),
        lambda code, text: commands.partitions_error(request.request_id, code, text),
    )


def look_up(session: SessionPort, command: Command) -> None:
    request = command.lookupTopic

    async def answer() -> None:
        topic = TopicName.parse(request.topic)
        if not (names_coordinators(topic) and session.broker.transactions.enabled):
            await permission.allow_for(session, Action.LOOKUP, topic, request.original_principal)
            await session.broker.check_name(topic)
        listeners = session.broker.listeners
        named = request.advertised_listener_name
        if session.broker.owners is not None:
            place = await session.broker.owners.locate(topic, authoritative=request.authoritative)
            session.reply(await _of_place(session, place, topic, request))
            return
        at = listeners.addresses(session.host, session.port, listener=named)
        # Without an advertised address, clients keep the one that brought them here, so that forwarded ports
        # and tunnels need no configuration.
        stay = not (session.broker.config.advertised_host or listeners.named)
        session.reply(
            commands.lookup_response(
                request.request_id,
                at.plain,
                service_url_tls=at.tls,
                through_service_url=stay,
            )
        )

    session.requests.run(
        request,
        answer(),
        lambda code, text: commands.lookup_error(request.request_id, code, text),
    )


async def _of_place(
    session: SessionPort, place: TopicPlace, topic: TopicName, request: pb.CommandLookupTopic
) -> bytes:
    """The answer in a cluster of several brokers.

    Raises ServiceNotReadyError for an unknown listener, NamespaceNotFoundError, MetadataError.
    """
    broker, named = session.broker, request.advertised_listener_name
    siblings = broker.siblings
    urls = siblings.own if place.urls is None and siblings is not None else place.urls
    is_sibling = siblings is not None and urls is not None and siblings.has(urls.broker_id)
    if siblings is not None and urls is not None and is_sibling and session.port in siblings.ports:
        if place.redirect and broker.owners is not None:
            # A client cannot repeat the look-up at a process that it reaches by a CONNECT only.
            await broker.owners.intend(topic, urls.broker_id)
        at = urls.addresses
        return commands.lookup_response(
            request.request_id, at.plain, service_url_tls=at.tls, through_service_url=True
        )
    if place.urls is None:
        at = broker.listeners.addresses(session.host, session.port, listener=named)
    elif place.urls.shared.plain and not is_sibling and session.port != broker.listeners.tls_port:
        at = place.urls.shared_of(named)
        return commands.lookup_response(
            request.request_id, at.plain, service_url_tls=at.tls, redirect=True, authoritative=place.redirect
        )
    else:
        at = place.urls.of_listener(named)
    return commands.lookup_response(
        request.request_id,
        at.plain,
        service_url_tls=at.tls,
        redirect=place.redirect,
    )


def has_room(session: SessionPort) -> None:
    """The connection accepts bytes again."""
    topic_lists.has_room(session)


def left(session: SessionPort) -> None:
    """The connection is closed."""
    topic_lists.forget(session)


HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.PARTITIONED_METADATA: partitions,
    pb.BaseCommand.LOOKUP: look_up,
    **topic_lists.HANDLERS,
}
