"""Supplies the worker with the entry runs of a call, one vector for each question."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from magnetar.base.entries import EntryRun
from magnetar.tiered.parquet.frames import SIZE, FrameKind, runs_parts
from magnetar.tiered.parquet.handover import Handover
from magnetar.tiered.parquet.parquet_history import WorkerLostError


class Supply:
    """The entry runs of one call."""

    def __init__(self, runs: AsyncIterator[Sequence[EntryRun]]) -> None:
        self._runs = runs
        self.is_aborted = False

    def abort(self) -> None:
        """Answers the next question with ABORT, because the caller has stopped."""
        self.is_aborted = True

    async def next(self) -> Sequence[EntryRun] | None:
        """The next runs; None at the end. Raises the errors of the runs, and WorkerLostError when the caller
        has stopped."""
        if self.is_aborted:
            raise WorkerLostError("the call was given up")
        return await anext(self._runs, None)


def in_frame(runs: Sequence[EntryRun] | None, handover: Handover | None) -> tuple[FrameKind, bytes]:
    """Kind and body of the frame for these runs, which are put into the shared memory if they fit; `runs`
    None: the end."""
    if runs is None:
        return FrameKind.END, b""
    parts = runs_parts(runs)
    size = None if handover is None else handover.put(parts)
    return (FrameKind.RUNS, b"".join(parts)) if size is None else (FrameKind.RUNS_PUT, SIZE.pack(size))
