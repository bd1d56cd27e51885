"""Conversations with a session: commands in, answers out (`transcripts/session-*.txt`).

    > producer topic: "persistent://public/default/t" producer_id: 1 request_id: 1
    < producer_success request_id: 1 ...

A command is named as in the protocol's BaseCommand, with its fields in protobuf's text format.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import MessageEvent, ReceiptRun
from support.sessions import Peer, World, command, in_world, send
from support.transcripts import answers_expected, replayed

FILES = sorted((Path(__file__).parent / "transcripts").glob("session-*.txt"))


def told(seen: object) -> list[str]:
    """What the broker sent, as lines. Ledgers have numbers that no test knows: they are left out."""
    if isinstance(seen, ReceiptRun):
        return [
            f"receipt producer {seen.producer_id} sequence {sequence_id} entry {entry_id}"
            for sequence_id, entry_id in zip(seen.sequence_ids, seen.entry_ids, strict=True)
        ]
    if isinstance(seen, MessageEvent):
        return [f"message entry {seen.position.entry_id} {seen.entry[seen.payload_at :].decode()}"]
    assert isinstance(seen, pb.BaseCommand)
    name = pb.BaseCommand.Type.Name(seen.type).lower()
    body = text_format.MessageToString(getattr(seen, name), as_one_line=True)
    return [f"{name} {body}".strip()]


def frame_of(said: str) -> bytes:
    """The frame that a line stands for."""
    name, _, fields = said.partition(" ")
    if name == "send":
        producer_id, sequence_id, text = fields.split(" ", 2)
        return send(int(producer_id), int(sequence_id), text.encode())
    body = text_format.Parse(fields, getattr(pb.BaseCommand(), name))
    return command(
        pb.BaseCommand.Type.Value(name.upper()),
        **{field.name: value for field, value in body.ListFields()},
    )


async def answers(world: World, peer: Peer, said: str, count: int, shown: int) -> list[str]:
    """Says something and waits for so many answers. Those from `shown` on: one that came too late, or that is
    one too many, stands at the next step."""

    def new() -> list[str]:
        return [line for each in peer.seen for line in told(each)][shown:]

    peer.send(frame_of(said))
    await world.until(lambda: peer.closed is not None or len(new()) >= count, f"answers to {said}")
    return [*new(), *([f"closed {peer.closed}"] if peer.closed else [])]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_as_the_transcript_says(file: Path) -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        given: list[list[str]] = []
        for said, count in answers_expected(file):
            given.append(await answers(world, peer, said, count, sum(map(len, given))))
        if peer.closed is None:
            assert await answers(world, peer, "ping", 1, sum(map(len, given))) == ["pong"]
        told_in_order.extend(given)

    told_in_order: list[list[str]] = []
    in_world(story)
    following = iter(told_in_order)
    lines = replayed(file, lambda said: next(following))
    assert lines == file.read_text(encoding="utf-8").splitlines()


def test_transcripts_are_there() -> None:
    assert len(FILES) >= 3
