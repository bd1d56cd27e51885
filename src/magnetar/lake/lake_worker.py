"""The worker process: `python -m magnetar.lake.lake_worker`. Keeps pyiceberg out of the broker's process.

Each line is one JSON object. The first line on standard input has the settings of the catalog, each further
line a request `{"id", "do", …}`. Each is answered by `{"id", "done"}` or `{"id", "error", "kind"}`, after any
number of `{"id", "at": [done, of]}`. The worker ends when its input ends, as it does with its parent process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from magnetar.history.history_worker import NoPandas
from magnetar.lake.lake_values import (
    CatalogSettings,
    LakeConflictError,
    LakeError,
    LakeSetupError,
    LogFiles,
)

NICE: Final = 5
"""Nice value of the process; not the highest, because deleting a topic with history waits for its table."""
_PROGRESS_S: Final = 0.2
KINDS: Final[dict[str, type[LakeError]]] = {"setup": LakeSetupError, "conflict": LakeConflictError}
"""Classes of errors by their names on the wire."""


def kind_of(error: LakeError) -> str:
    """The name of an error on the wire."""
    return next((word for word, kind in KINDS.items() if isinstance(error, kind)), "")


class LakeServer:
    """Answers requests, one after the other."""

    def __init__(self, settings: CatalogSettings, say: Callable[[dict[str, object]], None]) -> None:
        self._settings = settings
        self._say = say
        self._lake: Any = None
        self._told_s = 0.0

    def answer(self, request: dict[str, Any]) -> None:
        """Carries out a request and writes its answer."""
        from magnetar.lake.catalog import translated

        number = request.pop("id")
        try:
            done = translated(lambda: self._do(number, request.pop("do"), request))
        except LakeError as error:
            # The open catalog may be the cause, when it was moved or its token expired: open it again.
            self._lake = None
            self._say({"id": number, "error": str(error), "kind": kind_of(error)})
        else:
            self._say({"id": number, "done": done})

    def _do(self, number: int, what: str, request: dict[str, Any]) -> object:
        from magnetar.base.names import TopicName
        from magnetar.lake import upkeep
        from magnetar.lake.catalog import Lake
        from magnetar.lake.syncing import sync

        if self._lake is None:
            self._lake = Lake(self._settings)
        lake: Lake = self._lake
        if what == "sync":
            return asdict(sync(lake, LogFiles.from_json(request["log"])))
        if what == "topics":
            return lake.topics()
        topic = TopicName.parse(request.pop("topic"))
        if what == "status":
            return upkeep.plain(upkeep.status(lake, topic))

        def at(done: int, of: int) -> None:
            self._progress(number, done, of)

        if what == "verify":
            logs = [LogFiles.from_json(log) for log in request["logs"]]
            return upkeep.verify(lake, topic, logs, at)
        if what == "maintain":
            return upkeep.maintain(lake, topic, progress=at, **request)
        if what == "drop":
            return upkeep.drop(lake, topic, request["versions"])
        raise LakeError(f"{what} is not a request of this worker")

    def _progress(self, number: int, done: int, of: int) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _PROGRESS_S:
            self._told_s = now_s
            self._say({"id": number, "at": [done, of]})


def main() -> None:
    """Serves until standard input ends."""
    os.nice(NICE)
    sys.meta_path.insert(0, NoPandas())
    # Columns without statistics have none on purpose.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    # Output of a library must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: dict[str, object]) -> None:
        try:
            answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
            answers.flush()
        except BrokenPipeError:
            # The broker is gone; what is half done is as after a kill. Nothing is to be written at the exit.
            os._exit(1)

    server: LakeServer | None = None
    for line in sys.stdin:
        said = json.loads(line)
        if server is None:
            server = LakeServer(CatalogSettings.from_json(said), say)
        else:
            server.answer(said)


if __name__ == "__main__":
    main()
