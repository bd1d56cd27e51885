"""`magnetar produce`: sends messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller, calls
from magnetar.cli.given import given_as
from magnetar.cli.times import Moment, age_ms

if TYPE_CHECKING:
    from magnetar.base.ids import Position
    from magnetar.cli.messages.encoding import Encoder
    from magnetar.cli.messages.topic_writer import OutgoingMessage
    from magnetar.client.client import Client


def pairs_of(words: tuple[str, ...], option: str) -> dict[str, str]:
    """Parses words of the form KEY=VALUE. Raises click.BadParameter, which names `option`."""
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise click.BadParameter(f"{word!r} is not KEY=VALUE", param_hint=option)
        found[key] = value
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    topic: str
    messages: tuple[str, ...]
    key: str | None
    key_separator: str | None
    pairs: tuple[str, ...]
    event_time: str | int | None
    delay: str | None
    files: tuple[Path, ...]
    repeat: int
    compression: str
    raw: bool


@click.command(epilog="Example: magnetar produce orders '{\"amount\": 7}' --key ada --property source=shop")
@click.argument("topic")
@click.argument("messages", nargs=-1)
@click.option("--key", help="Key of all messages.  [none]")
@click.option("--key-separator", help="Text that separates key and value in each message.  [none]")
@click.option(
    "--property",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Property of all messages; may be repeated.  [none]",
)
@click.option(
    "--event-time", type=Moment(), help="Event time of all messages: a time, or an age as 2h.  [none]"
)
@click.option("--delay", help="Time until delivery: 30s, 2h, 7d.  [0s]")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File with one message; may be repeated.  [none]",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, help="Number of times to send each message.  [1]"
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zlib", "zstd", "snappy"]),
    default="none",
    help="Compression of the messages.  [none]",
)
@click.option("--raw", is_flag=True, help="Send the bytes unchanged, regardless of the topic's schema.")
@calls
@given_as(_Given)
def produce(caller: Caller, given: _Given) -> None:
    """Send MESSAGES to TOPIC, or each line of standard input; returns when all are durable.

    If the topic has a schema, each message is a value of it, written as JSON.
    """
    later_ms = None if given.delay is None else age_ms(given.delay)
    if given.delay is not None and later_ms is None:
        raise click.BadParameter(
            f"{given.delay!r} is not a duration; write 30s, 2h, 7d", param_hint="--delay"
        )
    envelope = _Envelope(
        key=given.key,
        key_separator=given.key_separator,
        properties=pairs_of(given.pairs, "--property"),
        event_time_ms=given.event_time if isinstance(given.event_time, int) else None,
        later_ms=later_ms,
    )
    payloads = _payloads(given.messages, given.files)
    if given.repeat > 1:
        payloads = _again(list(payloads), given.repeat)
    with caller.client() as client:
        places = _send(
            client, TopicName.parse(given.topic), payloads, envelope, given.compression, raw=given.raw
        )
    if caller.output != "table":
        rows = [
            (each, None if place is None else f"{place.ledger_id}:{place.entry_id}") for each, place in places
        ]
        caller.show([{"topic": str(each), "id": place} for each, place in rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    """Key, properties and times that all messages of one run get."""

    key: str | None
    key_separator: str | None
    properties: dict[str, str]
    event_time_ms: int | None
    later_ms: int | None

    def around(self, text: bytes, encoder: Encoder | None) -> OutgoingMessage:
        """The message with `text` as its payload. Raises UnfitValueError."""
        from magnetar.cli.messages.topic_writer import OutgoingMessage

        key = self.key
        if self.key_separator is not None:
            head, separator, rest = text.partition(self.key_separator.encode())
            key, text = (head.decode("utf-8", "replace"), rest) if separator else (key, text)
        return OutgoingMessage(
            payload=text if encoder is None else encoder.payload(text),
            key=key,
            properties=self.properties,
            event_time_ms=self.event_time_ms,
            deliver_at_ms=None if self.later_ms is None else time.time_ns() // 1_000_000 + self.later_ms,
        )


def _send(
    client: Client,
    topic: TopicName,
    payloads: Iterable[bytes],
    envelope: _Envelope,
    compression: str,
    *,
    raw: bool,
) -> list[tuple[TopicName, Position | None]]:
    """Sends all payloads and returns the place of each entry. When a payload cannot be sent, the messages
    before it are durable, and their number is printed."""
    from magnetar.cli.messages.encoding import Encoder
    from magnetar.cli.messages.topic_writer import TopicWriter
    from magnetar.cli.storage.progress import ShownProgress

    encoder = None if raw else Encoder(client, topic)
    version = b"" if encoder is None else encoder.version
    writer = TopicWriter(client, topic, compression=compression, schema_version=version)
    progress = ShownProgress("sent")
    try:
        try:
            for payload in payloads:
                writer.send(envelope.around(payload, encoder))
                progress.add(1)
        finally:
            places = list(writer.flush())
            click.echo(
                f"{progress.done} message{'' if progress.done == 1 else 's'} sent to {topic}", err=True
            )
    finally:
        writer.close()
        progress.close()
    return places


def _again(payloads: list[bytes], times: int) -> Iterator[bytes]:
    for _ in range(times):
        yield from payloads


def _payloads(messages: tuple[str, ...], files: tuple[Path, ...]) -> Iterable[bytes]:
    if messages or files:
        return [*(message.encode() for message in messages), *map(_content, files)]
    return _lines()


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="--file") from error


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")
