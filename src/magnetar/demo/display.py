"""What the user sees while the tour runs: one line per part, with bars, rates and where the data stands."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


@dataclass(frozen=True, slots=True)
class DisplayLine:
    """One line of the display."""

    task: TaskID


class Display:
    """A context: live lines on a terminal; elsewhere each finished part prints one line."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=8,
            disable=not console.is_terminal,
        )
        self._done: set[TaskID] = set()
        self._names: dict[TaskID, str] = {}

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def line(self, name: str, *, total: int | None = None, note: str = "") -> DisplayLine:
        """Add a line; without `total` its bar pulses."""
        task = self._progress.add_task(name, total=total, note=note)
        self._names[task] = name
        return DisplayLine(task)

    def update(
        self, line: DisplayLine, *, done: int | None = None, total: int | None = None, note: str
    ) -> None:
        """Move the bar to `done` and replace the note."""
        if line.task not in self._done:
            self._progress.update(line.task, completed=done, total=total, note=note)

    def finish(self, line: DisplayLine, note: str) -> None:
        """The part is done; the note stays. Doing it twice is harmless."""
        if line.task in self._done:
            return
        self._done.add(line.task)
        total = self._progress.tasks[line.task].total or 1
        self._progress.update(line.task, completed=total, total=total, note=note)
        self._progress.stop_task(line.task)
        if not self.console.is_terminal:
            self.console.print(f"{self._names[line.task]:<12} {note}", soft_wrap=True)
