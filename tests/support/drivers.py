"""Programs of ours that run scenarios with a client of another language."""

from __future__ import annotations


class NotHereError(Exception):
    """The client cannot be run on this machine; the message says why."""


def outcomes_of(output: str, errors: str) -> dict[str, str]:
    """Each scenario that ended with the reason of its failure, "" when it passed.

    `output` has a line for each, "ok NAME" or "failed NAME: REASON", in which `\\n` is an end of line.
    """
    found = {}
    for line in output.splitlines():
        if line.startswith("ok "):
            found[line.removeprefix("ok ")] = ""
        elif line.startswith("failed "):
            name, _, reason = line.removeprefix("failed ").partition(": ")
            found[name] = reason.replace("\\n", "\n")
    assert found, f"the driver printed nothing:\n{errors}"
    return found
