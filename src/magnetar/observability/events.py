"""Event names of log records, for programs that read the log.

A name consists of the logger and the words of the message's template, without its arguments; if the template
has no useful words, of the name of the function that logs. So two records have the same event exactly when
the same line of code logged them. `NAMES` has better names for events on which documents or alerts rely.

    _log.warning("%s: connection closed: %s", ...)     magnetar.broker     broker.connection-closed
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_ROOT: Final = "magnetar."
_PUT_IN: Final = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%]|\{[^{}]*\}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_WORDS_MAX: Final = 6
_FILLING: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "be",
        "by",
        "for",
        "from",
        "in",
        "is",
        "it",
        "its",
        "of",
        "that",
        "the",
        "to",
        "was",
        "which",
        "with",
    ]
)
_NOTHING_TOLD: Final = frozenset(("log", "ledger"))
"""Words that name an object, not an event."""
_KNOWN_MAX: Final = 2_000

NAMES: Final = {
    "admin.respond": "admin.call-failed",
    "audit.changed": "audit.changed",
    "audit.closed-role": "audit.connection-closed",
    "audit.refused-credentials-method": "audit.credentials-refused",
    "audit.refused-role": "audit.proxying-refused",
    "audit.refused-role-may-not": "audit.action-refused",
    "audit.revoked-role-may-no-longer": "audit.right-revoked",
    "bookie.corrupt": "bookie.segment-damaged",
    "bookie.missing": "bookie.segment-missing",
    "broker.canary.canary": "broker.canary.state-changed",
    "runtime.event-loop-stalled-ms-cpu-ms": "runtime.event-loop-stalled",
    "server.ready-clients-at-admin-at": "server.ready",
    "server.serve": "server.setting-translated",
}
"""The names in use, by the names that would be generated."""


@lru_cache(_KNOWN_MAX)
def event_of(logger: str, template: str, function: str) -> str:
    """The event of a record. `template`: the message before its arguments are inserted. `function`: the
    function that logs."""
    words = [word.lower() for word in _WORD.findall(_PUT_IN.sub(" ", template))]
    words = [word for word in words if word not in _FILLING][:_WORDS_MAX]
    if _NOTHING_TOLD.issuperset(words):
        words = function.strip("_<>").split("_")
    made = f"{logger.removeprefix(_ROOT)}.{'-'.join(words)}"
    return NAMES.get(made, made)
