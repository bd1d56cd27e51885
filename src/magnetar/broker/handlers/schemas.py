"""Schemas by version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.handlers import permission
from magnetar.broker.policies.schema_admission import admit_producer
from magnetar.schemas.registry import decode_version
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import Handler, SessionPort

Command = pb.BaseCommand


def get_schema(session: SessionPort, command: Command) -> None:
    request = command.getSchema

    async def work() -> None:
        topic = TopicName.parse(request.topic)
        try:
            version = decode_version(request.schema_version) if request.schema_version else None
        except ValueError as error:
            raise NotAllowedError(str(error)) from error
        await permission.allow(session, Action.LOOKUP, topic)
        registry = session.broker.schemas
        stored = await (registry.latest(topic) if version is None else registry.get(topic, version))
        if stored is None:
            session.reply(
                commands.schema_error(
                    request.request_id, pb.TopicNotFound, f"Topic not found or no-schema {request.topic}"
                )
            )
            return
        session.reply(commands.schema_found(request.request_id, stored.schema, stored.version_bytes))

    session.requests.run(
        request,
        work(),
        lambda code, text: commands.schema_error(request.request_id, code, text),
        large=True,
    )


def get_or_create_schema(session: SessionPort, command: Command) -> None:
    request = command.getOrCreateSchema

    async def work() -> None:
        name = TopicName.parse(request.topic)
        await permission.allow(session, Action.PRODUCE, name)
        topic = await session.broker.topic(name)
        version = await admit_producer(session.broker, topic.name, request.schema)
        session.reply(commands.schema_registered(request.request_id, version))

    session.requests.run(
        request,
        work(),
        lambda code, text: commands.schema_refused(request.request_id, code, text),
    )


HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.GET_SCHEMA: get_schema,
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: get_or_create_schema,
}
