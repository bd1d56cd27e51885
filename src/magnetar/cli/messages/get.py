"""`magnetar topics get`: the messages of a key, the newest one first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from magnetar.base.names import TopicName
from magnetar.cli import exit_codes
from magnetar.cli.caller import Caller, calls
from magnetar.cli.given import given_as
from magnetar.cli.messages import message_options as options

if TYPE_CHECKING:
    from magnetar.cli.messages.by_key import KeyReading
    from magnetar.cli.messages.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    topic: str
    key: str
    encoded: bool
    every: bool
    everywhere: bool
    count: int | None
    template: str | None
    raw: bool


@click.command(epilog="Example: magnetar topics get orders --key c-17")
@click.argument("topic")
@click.option("--key", required=True, help="Key of the messages to find.")
@click.option("--base64", "encoded", is_flag=True, help="The key is given as base64 of its bytes.")
@click.option("--all", "every", is_flag=True, help="Show every message of the key, the newest one first.")
@click.option("--everywhere", is_flag=True, help="Search all partitions, not only those of the key's hash.")
@options.several(options.COUNT, options.FORMAT, options.RAW)
@calls
@given_as(_Given)
def get(caller: Caller, given: _Given) -> int:
    """Show the newest message of TOPIC with a key; exit code 7 when there is none, or it deletes the key."""
    from magnetar.cli.messages.by_key import KeyReading
    from magnetar.cli.messages.decoding import PayloadDecoder

    name = TopicName.parse(given.topic)
    show = options.printer(caller.output, given.template)
    wanted = given.count or (None if given.every else 1)
    shown = 0
    with caller.client() as client, caller.admin() as admin:
        sought = _bytes_of(given.key) if given.encoded else given.key.encode()
        reading = KeyReading(client, admin, name, sought, everywhere=given.everywhere)
        decoder = PayloadDecoder(client, name, by_schema=not given.raw)
        for record in _at_most(reading.records(page=1 if wanted == 1 else None), wanted):
            if record.is_null and wanted == 1:
                click.echo(f"{given.key} was deleted by {record.id}", err=True)
                return exit_codes.NOT_FOUND
            show(options.names_of(record, decoder))
            shown += 1
    click.echo(_summary(shown, reading), err=True)
    return 0 if shown else exit_codes.NOT_FOUND


def _bytes_of(key: str) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise click.BadParameter(f"--key is not base64: {error}") from error


def _at_most(records: Iterator[Record], count: int | None) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        yield record
        if number == count:
            return


def _summary(shown: int, reading: KeyReading) -> str:
    looked: dict[str, object] = {
        "partition": reading.partitions,
        "directory of keys": reading.directories,
        "file": reading.files,
        "message that no file holds": reading.read,
    }
    said = ", ".join(f"{number} × {what}" for what, number in looked.items() if number)
    return f"{shown} found; read: {said}"
