"""What a call gives the worker: entry runs, a vector for each question."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from magnetar.base.entries import EntryRun
from magnetar.tiered.parquet.frames import SIZE, FrameKind, runs_parts
from magnetar.tiered.parquet.handover import Handover
from magnetar.tiered.parquet.parquet_history import WorkerLostError


class Supply:
    """The runs of a call, one vector for each question."""

    def __init__(self, runs: AsyncIterator[Sequence[EntryRun]]) -> None:
        self._runs = runs
        self.is_aborted = False

    def abort(self) -> None:
        """The caller is gone: the next question is answered by ABORT."""
        self.is_aborted = True

    async def next(self) -> Sequence[EntryRun] | None:
        """The next runs; None at the end. Raises what the runs raise; WorkerLostError when the caller
        stopped."""
        if self.is_aborted:
            raise WorkerLostError("the call was given up")
        return await anext(self._runs, None)


def in_frame(runs: Sequence[EntryRun] | None, handover: Handover | None) -> tuple[FrameKind, bytes]:
    """The frame with these runs, which are put into the memory that both see where they fit; None: there are
    no more."""
    if runs is None:
        return FrameKind.END, b""
    parts = runs_parts(runs)
    size = None if handover is None else handover.put(parts)
    return (FrameKind.RUNS, b"".join(parts)) if size is None else (FrameKind.RUNS_PUT, SIZE.pack(size))
