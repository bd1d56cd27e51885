"""The commands of `magnetar`, each in a module that is imported when it is called.

A new noun is a line here and a module with a click command of that name (`-` in a name is `_` in the
module's). Help is made from this table alone, so that it costs no import.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """Where a command is, and what it does."""

    place: str
    """`module:attribute`."""
    help: str
    """The first sentence of its help."""


COMMANDS: Final[dict[str, Command]] = {
    "standalone": Command(
        "magnetar.cli.standalone:standalone", "Run everything in one process, until Ctrl-C."
    ),
    "tokens": Command("magnetar.cli.tokens:tokens", "Keys and tokens for authentication (docs/security.md)."),
    "topics": Command("magnetar.cli.topics:topics", "Questions about topics."),
}
