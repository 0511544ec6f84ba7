"""The display of a job's progress, on standard error: the results of a job go to standard output."""

from typing import Self

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Lines:
    """Plain lines, for logs and pipes: one per stage, and the messages of the job."""

    def stage(self, title: str, steps: int | None = None) -> None:
        """Print a line with the title."""
        click.echo(title if steps is None else f"{title} ({steps:,})", err=True)

    def advance(self, steps: int = 1) -> None:
        """No effect: a line per step would be too many."""

    def say(self, text: str) -> None:
        """That line."""
        click.echo(text, err=True)


class Bar:
    """A bar per stage, on a terminal; it is removed at the end. Use `with`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True, redirect_stdout=False)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def stage(self, title: str, steps: int | None = None) -> None:
        """Replace the bar by the one of a new stage."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(title, total=steps)

    def advance(self, steps: int = 1) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._progress.advance(self._task, steps)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False)
