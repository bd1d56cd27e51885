"""`magnetar consume`: shows messages of a topic, or consumes them through a subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller, calls
from magnetar.cli.given import given_as
from magnetar.cli.messages import message_options as options

if TYPE_CHECKING:
    from magnetar.cli.messages.decoding import PayloadDecoder
    from magnetar.cli.messages.records import Record
    from magnetar.client.client import Client

_KINDS: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
_ISOLATIONS: Final = ("read-committed", "read-uncommitted")
_WITH_STATE: Final = "{transaction_state} {transaction} {value}"
_PERMITS: Final = 100
_ROUND_S: Final = 0.25
_IDLE_S: Final = 3.0
"""Seconds without a message after which a subscription is left, unless `--follow` is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    topic: str
    begin: str | int
    end: str | int
    count: int | None
    last: int | None
    follow: bool
    subscription: str | None
    kind: str
    condition: str | None
    template: str | None
    raw: bool
    isolation: str


@click.command(
    epilog="Example: magnetar consume orders --from 2h --filter 'value.amount > 100' --format '{key}'"
)
@click.argument("topic")
@options.several(options.FROM, options.TO, options.COUNT)
@click.option("--last", type=click.IntRange(min=1), help="Show only this number of the last messages.  [all]")
@click.option("-f", "--follow", is_flag=True, help="Continue with new messages, until Ctrl-C.")
@click.option(
    "-s", "--subscription", help="Consume through this subscription and acknowledge.  [none: only look]"
)
@click.option(
    "--type", "kind", type=click.Choice(_KINDS), default="Shared", help="Type of the subscription.  [Shared]"
)
@click.option(
    "--isolation",
    type=click.Choice(_ISOLATIONS),
    default=_ISOLATIONS[0],
    help="read-uncommitted also shows messages of open and aborted transactions, each with its state; it"
    " reads over the admin API.  [read-committed]",
)
@options.several(options.FILTER, options.FORMAT, options.RAW)
@calls
@given_as(_Given)
def consume(caller: Caller, given: _Given) -> None:
    """Show messages of TOPIC in the order of their times; with --follow also new ones. With a
    subscription, messages are acknowledged after they are printed, also those that the filter rejects.
    Values are decoded by the schema of each message.
    """
    from magnetar.cli.messages.decoding import PayloadDecoder

    name = TopicName.parse(given.topic)
    uncommitted = given.isolation != _ISOLATIONS[0]
    if uncommitted and (given.follow or given.subscription is not None):
        raise click.UsageError(
            "--isolation read-uncommitted shows stored messages only: leave out --follow and --subscription"
        )
    template = given.template
    if uncommitted and template is None and caller.output == "table":
        template = _WITH_STATE
    show = options.printer(caller.output, template)
    holds = options.tester(given.condition)
    with caller.client() as client:
        decoder = PayloadDecoder(client, name, by_schema=not given.raw)
        records: Iterator[Record | None]
        if uncommitted:
            from magnetar.cli.messages.uncommitted import stored_records

            records = stored_records(client, name, options.range_of(given.begin, given.end, given.last))
            taking = None
        elif given.subscription is None:
            records = _looked_at(client, name, given.begin, given.end, given.last, follow=given.follow)
            taking = None
        else:
            taking = _Taking(client, name, given.subscription, given.kind, earliest=given.begin == "earliest")
            records = taking.records(follow=given.follow)
        try:
            _print(records, decoder, holds, show, given.count, taking)
        finally:
            if taking is not None:
                taking.close()


def _print(
    records: Iterator[Record | None],
    decoder: PayloadDecoder,
    holds: Callable[[Record, Mapping[str, object]], bool],
    show: Callable[[Mapping[str, object]], None],
    count: int | None,
    taking: _Taking | None,
) -> None:
    printed = 0
    for record in records:
        if record is None:
            continue
        names = options.names_of(record, decoder)
        if holds(record, names):
            show(names)
            printed += 1
        if taking is not None and record.is_last:
            taking.acknowledge(record)
        if printed == count:
            return


def _looked_at(
    client: Client, topic: TopicName, begin: str | int, end: str | int, last: int | None, *, follow: bool
) -> Iterator[Record | None]:
    from magnetar.cli.messages.topic_reading import TopicReading

    only_new = follow and begin == "latest"
    wanted = options.range_of("earliest" if only_new else begin, end, last)
    reading = TopicReading(client, topic, wanted)
    if not follow:
        return iter(reading.records())
    return reading.following() if only_new else chain(reading.records(), reading.following())


class _Taking:
    """Consumers of a subscription, one for each partition."""

    def __init__(
        self, client: Client, topic: TopicName, subscription: str, kind: str, *, earliest: bool
    ) -> None:
        from magnetar.cli.messages.topic_reading import topics_of
        from magnetar.client.consumer import EntryConsumer

        self._consumers = {
            each: EntryConsumer(client, each, subscription, kind=kind, earliest=earliest)
            for each in topics_of(client, topic)
        }

    def records(self, *, follow: bool) -> Iterator[Record | None]:
        """Yields messages as they arrive, and None about every round. Ends after `_IDLE_S` seconds without a
        message, unless `follow`."""
        from magnetar.cli.messages.records import records_of

        for consumer in self._consumers.values():
            consumer.ask(_PERMITS)
        idle_s = 0.0
        while follow or idle_s < _IDLE_S:
            idle_s += _ROUND_S
            for topic, consumer in self._consumers.items():
                found = list(records_of(topic, consumer.read(_ROUND_S / len(self._consumers))))
                if found:
                    idle_s = 0.0
                    yield from found
                    consumer.ask(len(found))
            yield None

    def acknowledge(self, record: Record) -> None:
        """Acknowledges the entry of a message. Call it after the last message of the entry."""
        self._consumers[record.topic].acknowledge([record.position])

    def close(self) -> None:
        """Closes the consumers. The broker delivers entries that are not acknowledged again."""
        for consumer in self._consumers.values():
            consumer.close()
