"""`magnetar search` and `magnetar peek`: find messages, and show the next ones of a subscription."""

from __future__ import annotations

from dataclasses import dataclass

import click

from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.cli import exit_codes
from magnetar.cli.caller import Caller, calls
from magnetar.cli.given import given_as
from magnetar.cli.messages import message_options as options


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    topic: str
    condition: str
    begin: str | int
    end: str | int
    count: int | None
    template: str | None
    raw: bool


@click.command(epilog="Example: magnetar search orders 'value.customer == \"ada\"' --from 7d")
@click.argument("topic")
@click.argument("condition", metavar="EXPRESSION")
@options.several(
    options.FROM,
    options.TO,
    options.COUNT,
    options.FORMAT,
    options.RAW,
)
@calls
@given_as(_Given)
def search(caller: Caller, given: _Given) -> int:
    """Show the messages of TOPIC for which EXPRESSION is true; exit code 7 when there is none."""
    from magnetar.cli.messages.decoding import PayloadDecoder
    from magnetar.cli.messages.topic_reading import TopicReading
    from magnetar.cli.storage.progress import ShownProgress

    name = TopicName.parse(given.topic)
    show = options.printer(caller.output, given.template or (r"{id} {publish_time:time} {key} {value}"))
    holds = options.tester(given.condition)
    found = 0
    last_ms: int | None = None
    with caller.client() as client:
        reading = TopicReading(client, name, options.range_of(given.begin, given.end))
        decoder = PayloadDecoder(client, name, by_schema=not given.raw)
        progress = ShownProgress("searched", reading.count())
        with options.resumable(name, lambda: last_ms):
            for record in reading.records():
                last_ms = record.time_ms
                names = options.names_of(record, decoder)
                if holds(record, names):
                    show(names)
                    found += 1
                progress.add(1)
                if found == given.count:
                    break
        progress.close()
    click.echo(f"{found} of {progress.done} messages match", err=True)
    return 0 if found else exit_codes.NOT_FOUND


@click.command(epilog="Example: magnetar peek orders billing -n 3")
@click.argument("topic")
@click.argument("subscription")
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=1, help="Number of entries.  [1]")
@options.several(options.FORMAT, options.RAW)
@calls
def peek(caller: Caller, topic: str, subscription: str, count: int, template: str | None, raw: bool) -> int:
    """Show the next messages of SUBSCRIPTION on TOPIC, without acknowledging them."""
    from magnetar.adminclient import paths
    from magnetar.adminclient.errors import AdminRefusedError
    from magnetar.cli.messages.decoding import PayloadDecoder
    from magnetar.cli.messages.records import records_of
    from magnetar.cli.messages.topic_reading import topics_of
    from magnetar.client.reader import peek as entry_at

    name = TopicName.parse(topic)
    show = options.printer(caller.output, template)
    shown = 0
    with caller.client() as client, caller.admin() as admin:
        decoder = PayloadDecoder(client, name, by_schema=not raw)
        for each in topics_of(client, name):
            for number in range(1, count + 1):
                try:
                    answer = admin.answer(f"{paths.subscription(str(each), subscription)}/position/{number}")
                except AdminRefusedError as error:
                    # There are no more; an absent subscription has none at all, and is told.
                    if error.status != 404 or "subscription" in error.reason.lower():
                        raise
                    break
                ledger, entry = answer.headers["x-pulsar-message-id"].split(":")[:2]
                columns = entry_at(
                    client, each, Position(LedgerId(int(ledger)), int(entry)), caller.timeout_s
                )
                for record in records_of(each, columns):
                    show(options.names_of(record, decoder))
                    shown += 1
    return 0 if shown else exit_codes.NOT_FOUND
