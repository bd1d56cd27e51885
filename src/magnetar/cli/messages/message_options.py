"""Options that commands on messages share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import click

from magnetar.cli.times import Moment

if TYPE_CHECKING:
    from magnetar.base.names import TopicName
    from magnetar.cli.messages.decoding import PayloadDecoder
    from magnetar.cli.messages.records import Record
    from magnetar.cli.messages.topic_reading import Range

_F = TypeVar("_F", bound=Callable[..., object])

FROM: Final = click.option(
    "--from",
    "begin",
    type=Moment(),
    default="earliest",
    help="Start: earliest, a time, or an age as 2h.  [earliest]",
)
TO: Final = click.option(
    "--to", "end", type=Moment(), default="latest", help="End: a time, an age as 2h, or latest.  [latest]"
)
COUNT: Final = click.option(
    "-n", "--count", type=click.IntRange(min=1), help="Stop after this number of messages.  [no limit]"
)
FILTER: Final = click.option(
    "--filter",
    "condition",
    help="Expression that is true for the messages to take: 'value.amount > 100 and key == \"a\"'.  [all]",
)
FORMAT: Final = click.option(
    "--format",
    "template",
    help="Format of a line: '{publish_time:time} {key} {value.amount}'."
    "  [value; search: id, time, key, value]",
)
RAW: Final = click.option("--raw", is_flag=True, help="Show values as text, without the topic's schema.")


def several(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """A decorator that adds all of these options, in this order."""

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def range_of(begin: str | int, end: str | int, last: int | None = None) -> Range:
    """The range that `--from`, `--to` and `--last` give. Raises click.BadParameter for an empty range."""
    from magnetar.cli.messages.topic_reading import Range

    if end == "earliest" or (begin == "latest" and last is None):
        raise click.BadParameter(
            "the range is empty; `consume --follow --from latest` waits for new messages"
        )
    return Range(
        from_time_ms=begin if isinstance(begin, int) else None,
        to_time_ms=end if isinstance(end, int) else None,
        last=last,
    )


def names_of(record: Record, decoder: PayloadDecoder) -> dict[str, object]:
    """The names of a message for filters, format strings and `-o json`."""
    return record.document(decoder.value(record))


def tester(condition: str | None) -> Callable[[Record, Mapping[str, object]], bool]:
    """A test whether the condition holds for a message and its names; without a condition it is always true.
    Raises ExpressionError."""
    if condition is None:
        return lambda record, names: True
    import time

    from magnetar.cli.messages.expressions import compiled

    holds = compiled(condition)
    return lambda record, names: holds({**names, "age": time.time() - record.publish_time_ms / 1000})


def printer(output: str, template: str | None) -> Callable[[Mapping[str, object]], None]:
    """A function that prints a message: by the template, else as a JSON object in one line (`-o json`), as
    YAML, or its value alone."""
    from magnetar.cli.messages import templates
    from magnetar.cli.messages.decoding import plain

    if template is None and output == "json":
        return lambda names: click.echo(json.dumps(plain(names), ensure_ascii=False))
    if template is None and output == "yaml":
        from magnetar.cli.output import yaml_lines

        return lambda names: click.echo("---\n" + "\n".join(yaml_lines(plain(names))))
    line = templates.compiled("{value}" if template is None else template)
    # A line that ends with a line break gets no second one.
    newline = template is None or not template.endswith((r"\n", r"\0"))
    return lambda names: click.echo(line(names), nl=newline)


@contextmanager
def resumable(topic: TopicName, last_ms: Callable[[], int | None]) -> Iterator[None]:
    """Prints how to continue when the command is interrupted. `last_ms`: time of the last message, in Unix
    milliseconds; None: nothing is printed."""
    try:
        yield
    except KeyboardInterrupt:
        at = last_ms()
        if at is not None:
            click.echo(f"\nstopped in {topic}; to continue, repeat the command with --from {at}", err=True)
        raise
