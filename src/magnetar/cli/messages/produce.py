"""`magnetar produce`: sends messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller, calls
from magnetar.cli.times import Moment, age_ms


def pairs_of(words: tuple[str, ...], option: str) -> dict[str, str]:
    """KEY=VALUE, several times. Raises click.BadParameter."""
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise click.BadParameter(f"{word!r} is not KEY=VALUE", param_hint=option)
        found[key] = value
    return found


@click.command(epilog="Example: magnetar produce orders '{\"amount\": 7}' --key ada --property source=shop")
@click.argument("topic")
@click.argument("messages", nargs=-1)
@click.option("--key", help="Key of all messages.")
@click.option("--key-separator", help="Each message is a key, this text, and a value.")
@click.option("--property", "pairs", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--event-time", type=Moment(), help="A time, or an age as 2h.")
@click.option("--delay", help="Deliver so much later: 30s, 2h, 7d.")
@click.option(
    "--file", "files", type=click.Path(path_type=Path), multiple=True, help="A message each; may be repeated."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, help="Send them so many times.  [1]")
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zlib", "zstd", "snappy"]),
    default="none",
    help="[none]",
)
@click.option("--raw", is_flag=True, help="Send them as they are, whatever the topic's schema says.")
@calls
def produce(
    caller: Caller,
    topic: str,
    messages: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    pairs: tuple[str, ...],
    event_time: str | int | None,
    delay: str | None,
    files: tuple[Path, ...],
    repeat: int,
    compression: str,
    raw: bool,
) -> None:
    """Send MESSAGES to TOPIC, or each line of standard input; returns when all are durable.

    Where the topic has a schema, each is a value of it, written as JSON.
    """
    from magnetar.cli.messages.encoding import Encoder
    from magnetar.cli.messages.publishing import Outgoing, TopicWriter
    from magnetar.cli.progress import Progress

    properties = pairs_of(pairs, "--property")
    later_ms = None if delay is None else age_ms(delay)
    if delay is not None and later_ms is None:
        raise click.BadParameter(f"{delay!r} is no duration; write 30s, 2h, 7d", param_hint="--delay")
    payloads = _payloads(messages, files)
    sent = 0
    progress = Progress("sent")
    with caller.client() as client:
        name = TopicName.parse(topic)
        encoder = None if raw else Encoder(client, name)
        version = b"" if encoder is None else encoder.version
        writer = TopicWriter(client, name, compression=compression, schema_version=version)
        try:
            for payload in payloads if repeat == 1 else _again(list(payloads), repeat):
                own_key, value = key, payload
                if key_separator is not None:
                    head, separator, rest = payload.partition(key_separator.encode())
                    own_key, value = (head.decode("utf-8", "replace"), rest) if separator else (key, payload)
                writer.send(
                    Outgoing(
                        payload=value if encoder is None else encoder.payload(value),
                        key=own_key,
                        properties=properties,
                        event_time_ms=event_time if isinstance(event_time, int) else None,
                        deliver_at_ms=None if later_ms is None else time.time_ns() // 1_000_000 + later_ms,
                    )
                )
                sent += 1
                progress.add(1)
            places = list(writer.flush())
        finally:
            writer.close()
            progress.close()
    if caller.output != "table":
        caller.show(
            [
                {"topic": str(each), "id": None if place is None else f"{place.ledger_id}:{place.entry_id}"}
                for each, place in places
            ]
        )
    else:
        click.echo(f"{sent} message{'' if sent == 1 else 's'} sent to {topic}", err=True)


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
