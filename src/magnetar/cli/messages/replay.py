"""`magnetar replay`: publishes messages of a range again, to another topic or to their original topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller, calls, confirm
from magnetar.cli.given import given_as
from magnetar.cli.messages import message_options as options

if TYPE_CHECKING:
    from magnetar.cli.messages.records import Record
    from magnetar.cli.messages.topic_reading import Range
    from magnetar.cli.messages.topic_writer import TopicWriter
    from magnetar.client.client import Client

ORIGIN: Final = ("REAL_TOPIC", "ORIGIN_TOPIC")
"""Properties with which clients name the original topic of a dead letter."""
_CLIENTS_OWN: Final = frozenset(
    {*ORIGIN, "RECONSUMETIMES", "DELAY_TIME", "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME", "EXCEPTION"}
)
"""Properties that clients add to dead letters and retries; a replayed message does not get them."""


class ReplayError(MagnetarError):
    """A message cannot be published again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    topic: str
    target: str | None
    begin: str | int
    end: str | int
    count: int | None
    condition: str | None
    dead_letters: bool
    dry_run: bool
    yes: bool


@click.command(
    epilog="Example: magnetar replay orders orders-again --from 2h --to 1h --filter 'key == \"a\"'"
)
@click.argument("topic")
@click.argument("target", required=False)
@options.several(options.FROM, options.TO, options.COUNT, options.FILTER)
@click.option("--dead-letters", is_flag=True, help="Send each dead letter to its original topic.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, without sending it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@calls
@given_as(_Given)
def replay(caller: Caller, given: _Given) -> None:
    """Publish messages of TOPIC again: to TARGET, or dead letters to their original topic. Keys,
    properties, event times, payloads and the order of each key stay the same. Dead letters also stay in
    their topic.
    """
    if given.dead_letters == (given.target is not None):
        raise click.UsageError("name either a TARGET or --dead-letters")
    source = TopicName.parse(given.topic)
    if given.target is not None and TopicName.parse(given.target).base == source.base and not given.dry_run:
        confirm(f"Send messages of {given.topic} to itself?", yes=given.yes)
    with caller.client() as client:
        copied = _Replay(client, source, given.target, dry_run=given.dry_run)
        try:
            copied.run(options.range_of(given.begin, given.end), given.condition, given.count)
        finally:
            copied.close()
    for place, number in sorted(copied.sent.items()):
        done = "would go" if given.dry_run else "sent"
        click.echo(f"{number} message{'' if number == 1 else 's'} {done} to {place}")
    if not copied.sent:
        click.echo("no message to send", err=True)


class _Replay:
    """One run."""

    def __init__(self, client: Client, source: TopicName, target: str | None, *, dry_run: bool) -> None:
        self.sent: dict[str, int] = {}
        self._client = client
        self._source = source
        self._target = target
        self._dry_run = dry_run
        self._writers: dict[str, TopicWriter] = {}

    def run(self, wanted: Range, condition: str | None, count: int | None) -> None:
        from magnetar.cli.messages.decoding import PayloadDecoder
        from magnetar.cli.messages.topic_reading import TopicReading
        from magnetar.cli.storage.progress import ShownProgress

        reading = TopicReading(self._client, self._source, wanted)
        decoder = PayloadDecoder(self._client, self._source)
        holds = options.tester(condition)
        progress = ShownProgress("replayed", reading.count() if condition is None else None)
        last_ms: int | None = None
        with options.resumable(self._source, lambda: last_ms):
            try:
                for record in reading.records():
                    last_ms = record.time_ms
                    if condition is None or holds(record, options.names_of(record, decoder)):
                        self._send(record)
                        progress.add(1)
                    if progress.done == count:
                        break
            finally:
                # Also when it is interrupted: what it says of how to go on must be true.
                for writer in self._writers.values():
                    writer.flush()
                progress.close()

    def _send(self, record: Record) -> None:
        from magnetar.cli.messages.topic_writer import OutgoingMessage, TopicWriter

        if record.encrypted:
            raise ReplayError(
                f"message {record.id} of {record.topic} is encrypted: only a client with its key can send "
                f"it again"
            )
        target = self._target or self._origin(record)
        self.sent[target] = self.sent.get(target, 0) + 1
        if self._dry_run:
            return
        if target not in self._writers:
            self._writers[target] = TopicWriter(self._client, TopicName.parse(target))
        properties = dict(record.properties)
        if self._target is None:
            properties = {key: value for key, value in properties.items() if key not in _CLIENTS_OWN}
        self._writers[target].send(
            OutgoingMessage(
                payload=record.payload,
                key=record.key,
                properties=properties,
                event_time_ms=record.event_time_ms,
                is_null=record.is_null,
            )
        )

    def _origin(self, record: Record) -> str:
        for name in ORIGIN:
            if found := record.properties.get(name):
                # A partition is where it was, not where its key belongs when partitions were added.
                return str(TopicName.parse(found).base)
        raise ReplayError(
            f"message {record.id} of {record.topic} is not a dead letter: it has no property {ORIGIN[0]};"
            " name a TARGET"
        )

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
