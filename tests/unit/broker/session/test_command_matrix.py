"""Every command of the binary protocol × its sender × what it names: `command_matrix.txt` has the rights.

    first         opens a connection, once
    open          needs no right
    lookup, produce, consume    needs that right on a topic
    namespace     needs a right in a namespace
    own           is about what the same connection has opened
    transaction   any client may; a topic or subscription that it names needs the right to use it
    server        is what brokers send; from a client it means nothing

Sessions without sockets, credentials that are real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from support import principals
from support.principals import HOME, MAY, SHOWN, GuardedWorld, may
from support.seen import FIELD_OF_TYPE
from support.sessions import TOPIC, Peer, Type, command, fill_required, send

TABLE: Final = Path(__file__).with_name("command_matrix.txt")
REFUSED: Final = pb.AuthorizationError


def shown(auth_data: str, original: str, method: str = "token") -> bytes:
    """A CONNECT."""
    more = {"original_principal": original} if original else {}
    return command(
        Type.CONNECT,
        client_version="test",
        protocol_version=19,
        auth_method_name=method if auth_data else "",
        auth_data=auth_data.encode(),
        **more,
    )


PRINCIPALS: Final = {who: shown(*said) for who, said in SHOWN.items()} | {
    "unknown method": shown("root", "", "name")
}
UNKNOWN: Final = principals.UNKNOWN | {"unknown method"}
WORDS: Final = frozenset((*MAY, "first", "open", "own", "transaction", "server"))


def rows() -> dict[int, str]:
    """The word of each command."""
    found = {}
    for line in TABLE.read_text().splitlines():
        word, name = line.split()
        found[Type.Value(name)] = word
    return found


def asking(kind: int, topic: str, request_id: int) -> bytes:
    """The command about a topic or its namespace."""
    more: dict[int, dict[str, Any]] = {
        Type.SUBSCRIBE: {
            "topic": topic,
            "subscription": "s",
            "subType": pb.CommandSubscribe.SubType.Value("Shared"),
            "consumer_id": request_id,
        },
        Type.PRODUCER: {"topic": topic, "producer_id": request_id},
        Type.GET_OR_CREATE_SCHEMA: {
            "topic": topic,
            "schema": pb.Schema(name="", type=pb.Schema.Type.String, schema_data=b""),
        },
        Type.GET_TOPICS_OF_NAMESPACE: {"namespace": namespace_of(topic)},
        Type.WATCH_TOPIC_LIST: {
            "namespace": namespace_of(topic),
            "watcher_id": request_id,
            "topics_pattern": ".*",
        },
    }
    return command(kind, request_id=request_id, **more.get(kind, {"topic": topic}))


def namespace_of(topic: str) -> str:
    return "/".join(topic.partition("://")[2].split("/")[:2])


def code_of(answer: Any) -> int | None:
    """The error that an answer tells; None when it tells none."""
    for field in ("error", "error_code"):
        if field in answer.DESCRIPTOR.fields_by_name and answer.HasField(field):
            return int(getattr(answer, field))
    return None


def text_of(answer: Any) -> str:
    return str(getattr(answer, "message", "") or getattr(answer, "error_message", ""))


class Cells(GuardedWorld):
    """A guarded broker whose clients send commands."""

    def __init__(self) -> None:
        super().__init__()
        self._requests = 100

    async def connected(self, who: str) -> Peer:
        peer = self.peer(connected=False)
        peer.send(PRINCIPALS[who])
        await self.until(lambda: peer.commands(Type.CONNECTED) or peer.closed, "answer to CONNECT")
        return peer

    async def ask(self, peer: Peer, kind: int, topic: str) -> Any:
        """The answer to a command about a topic."""
        self.cells += 1
        self._requests += 1
        request_id = self._requests
        peer.send(asking(kind, topic, request_id))
        answer = await self.until(lambda: peer.find_answer(request_id) or peer.closed, Type.Name(kind))
        assert not isinstance(answer, str), (Type.Name(kind), topic, answer)
        if kind == Type.PRODUCER and code_of(answer) is None:
            peer.send(command(Type.CLOSE_PRODUCER, producer_id=request_id, request_id=request_id + 1_000_000))
        if kind == Type.SUBSCRIBE and code_of(answer) is None:
            peer.send(command(Type.CLOSE_CONSUMER, consumer_id=request_id, request_id=request_id + 1_000_000))
        return answer


def story(work: Callable[[Cells], Awaitable[None]]) -> None:
    async def run() -> None:
        world = Cells()
        await world.prepare()
        try:
            await work(world)
        finally:
            await world.close()

    asyncio.run(run())


def test_every_command_has_a_row() -> None:
    assert set(rows()) == set(Type.values())
    assert set(rows().values()) == WORDS


def test_who_is_unknown_gets_no_further_than_connect() -> None:
    async def work(world: Cells) -> None:
        wrong = []
        for who in UNKNOWN:
            for kind in rows():
                world.cells += 1
                peer = world.peer(connected=False)
                frame = asking(kind, TOPIC, 7) if rows()[kind] in MAY else bare(kind, Position(0, 0))
                peer.send(PRINCIPALS[who], frame)
                await world.until(lambda peer=peer: peer.closed, f"{who} is sent away")
                peer.flush()
                if peer.commands(Type.CONNECTED) or any(
                    seen.type != Type.ERROR for seen in peer.seen if isinstance(seen, pb.BaseCommand)
                ):
                    wrong.append((who, Type.Name(kind), peer.seen))
        assert not wrong
        assert world.cells == len(UNKNOWN) * len(rows())

    story(work)


def bare(kind: int, position: Position) -> bytes:
    """The command with what it must have and nothing else; SEND, ACK and FLOW for the ids 1."""
    frames: dict[int, bytes] = {
        Type.SEND: send(1, 7),
        Type.ACK: encode_ack(1, [position]),
        Type.FLOW: encode_flow(1, 100),
    }
    if kind in frames:
        return frames[kind]
    body = getattr(pb.BaseCommand(), FIELD_OF_TYPE[kind])
    fill_required(body)
    return command(kind, **{field.name: value for field, value in body.ListFields()})


def test_every_principal_and_every_right() -> None:
    async def work(world: Cells) -> None:
        wrong = []
        for who in [each for each in PRINCIPALS if each not in UNKNOWN]:
            peer = await world.connected(who)
            assert peer.closed is None, who
            for kind, word in rows().items():
                if word in MAY:
                    code = code_of(await world.ask(peer, kind, TOPIC))
                    if (code == REFUSED) != (who not in MAY[word]):
                        wrong.append((who, Type.Name(kind), code))
        assert not wrong

    story(work)


def test_no_name_gets_anybody_further() -> None:
    async def work(world: Cells) -> None:
        wrong: list[Any] = []
        for who in [each for each in SHOWN if each not in UNKNOWN]:
            peer = await world.connected(who)
            for kind, word in rows().items():
                if word not in ("lookup", "produce", "consume"):
                    continue
                for topic, home in HOME.items():
                    code = code_of(await world.ask(peer, kind, topic))
                    through = code is None if not home else code != REFUSED
                    if through and not may(who, word, home):
                        wrong.append((who, Type.Name(kind), topic, code))
                    if home and may(who, word, home) and code == REFUSED:
                        wrong.append((who, Type.Name(kind), topic, "refused"))
        assert not wrong
        assert world.cells > 800

    story(work)


def test_a_refusal_is_the_same_for_what_exists_and_what_does_not() -> None:
    names = (
        TOPIC,
        "persistent://public/default/u",
        "persistent://public/none/t",
        "persistent://none/default/t",
    )

    async def work(world: Cells) -> None:
        wrong = []
        for who in ("stranger", "foreign"):
            peer = await world.connected(who)
            for kind, word in rows().items():
                if word not in MAY:
                    continue
                said = set()
                for name in names:
                    answer = await world.ask(peer, kind, name)
                    text = text_of(answer).replace(name, "NAME").replace(namespace_of(name), "NAME")
                    said.add((code_of(answer), text))
                if len(said) != 1 or next(iter(said))[0] != REFUSED:
                    wrong.append((who, Type.Name(kind), said))
        assert not wrong

    story(work)


@pytest.mark.parametrize("who", ["stranger", "foreign", "reader", "writer", "boss", "root"])
def test_what_another_connection_opened_is_out_of_reach(who: str) -> None:
    """Ids are the connection's own, even if another one guesses them; commands of brokers do nothing."""

    async def work(world: Cells) -> None:
        owner = await world.connected("root")
        topic = await world.topic()
        assert code_of(await owner.producer(1, request_id=1)) is None
        assert code_of(await owner.consumer(1, request_id=2, subscription="mine")) is None
        owner.send(*(send(1, number) for number in range(3)))
        await world.until(lambda: len(owner.receipts) == 3, "receipts")
        position = owner.receipts[-1][2]
        subscription = topic.subscriptions["mine"]

        def state() -> object:
            return (
                subscription.cursor.mark_delete,
                len(subscription.consumers),
                sorted(topic.subscriptions),
                len(topic.producers),
                topic.log.last_position,
                len(owner.messages),
                owner.closed,
            )

        before = state()
        peer = await world.connected(who)
        for kind, word in rows().items():
            if word in MAY:
                continue
            world.cells += 1
            if peer.closed:
                peer = await world.connected(who)
            seen = len(peer.seen)
            peer.send(bare(kind, position))
            await world.settle()
            peer.flush()
            told = [each for each in peer.seen[seen:] if isinstance(each, pb.BaseCommand)]
            assert state() == before, (who, Type.Name(kind))
            good = {Type.PRODUCER_SUCCESS, Type.SEND_RECEIPT}
            if not Type.Name(kind).endswith("CLOSE") and kind not in (
                Type.CLOSE_PRODUCER,
                Type.CLOSE_CONSUMER,
            ):
                # Closing what is not there is no error, as in Pulsar.
                good.add(Type.SUCCESS)
            assert not [each for each in told if each.type in good], (who, Type.Name(kind), told)
        # It still works: the owner's messages come when the owner asks for them.
        owner.send(encode_flow(1, 10))
        await world.until(lambda: len(owner.messages) == 3, "messages")

    story(work)
