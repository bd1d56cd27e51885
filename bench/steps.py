"""A broker that notes what has its event loop for long, in processor time, which a busy
machine does not change.

    python -m bench.steps FILE standalone …     is `magnetar standalone …`

A line for each callback of the loop and each of its turns that took more than 5 ms: `step` or `turn`,
milliseconds, and what it was. asyncio's loop runs in place of uvloop, so it is slower than what is installed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio import base_events, events
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

NOTED_MS: Final = 5.0


def noted_longest_ms(path: Path, begin: int) -> dict[str, float]:
    """The longest `step` and `turn` of what was noted from this place of the file on; 0 where none was."""
    found = {"step": 0.0, "turn": 0.0}
    for line in path.read_bytes()[begin:].decode().splitlines():
        kind, took_ms, _ = line.split(" ", 2)
        found[kind] = max(found[kind], float(took_ms))
    return found


def _told(callback: Any) -> str:
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return str(getattr(callback, "__qualname__", callback))
    names: list[str] = []
    coroutine: Any = task.get_coro()
    while coroutine is not None and len(names) < 12:
        names.append(str(getattr(coroutine, "__qualname__", "?")))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return " > ".join(names) or "a task that has ended"


def _watch(out: TextIO) -> None:
    # Both are asyncio's own and not to be replaced elsewhere; this is a measurement.
    handle: Any = events.Handle
    loop: Any = base_events.BaseEventLoop
    run_handle, run_once = handle._run, loop._run_once

    def step(self: Any) -> None:
        callback, began = self._callback, time.thread_time()
        run_handle(self)
        took_ms = (time.thread_time() - began) * 1_000
        if took_ms > NOTED_MS:
            print(f"step {took_ms:.1f} {_told(callback)[:300]}", file=out)

    def turn(self: Any) -> None:
        began = time.thread_time()
        run_once(self)
        took_ms = (time.thread_time() - began) * 1_000
        if took_ms > NOTED_MS:
            print(f"turn {took_ms:.1f} of all", file=out)

    handle._run, loop._run_once = step, turn


def main() -> NoReturn:
    """Command line."""
    out = Path(sys.argv[1]).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  # until the process ends
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # as if it was not installed
    _watch(out)
    from magnetar.cli.main import main as magnetar

    magnetar(sys.argv[2:])


if __name__ == "__main__":
    main()
