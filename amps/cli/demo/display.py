"""The output of the demonstration: progress bars on a terminal, a line per second elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from amps.cli.demo.proof import Proof

BAR_EVERY_S = 0.05
LINE_EVERY_S = 1.0

Update = Callable[[int, str], None]  # messages done, additional text


class Display:
    """Writes to standard output."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"[dim]{time.monotonic() - self.started:6.2f} s[/dim]  {text}", soft_wrap=True)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Update]:
        """Show the progress of a phase of `total` messages; the update may be called at any rate."""
        if not self.console.is_terminal:
            yield self._lines(label, total)
            return
        columns = (
            TextColumn(f"{label:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("", total=total)
            next_at = 0.0

            def update(done: int, text: str) -> None:
                nonlocal next_at
                now = time.monotonic()
                if now >= next_at:
                    next_at = now + BAR_EVERY_S
                    bar.update(task, completed=done, description=text)

            yield update

    def _lines(self, label: str, total: int) -> Update:
        next_at = time.monotonic() + LINE_EVERY_S

        def update(done: int, text: str) -> None:
            nonlocal next_at
            now = time.monotonic()
            if now >= next_at:
                next_at = now + LINE_EVERY_S
                self.say(f"{label} {done:,} of {total:,}{f', {text}' if text else ''}")

        return update

    def proof(self, proof: Proof) -> None:
        """Show the comparison, topic by topic."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("topic")
        for column in ("published", "replayed"):
            table.add_column(column, justify="right")
        table.add_column("source checksum")
        table.add_column("replay checksum")
        table.add_column("")
        for topic in proof.topics:
            table.add_row(
                topic.topic,
                f"{topic.published:,}",
                f"{topic.replayed:,}",
                topic.checksum_published,
                topic.checksum_replayed,
                "[green]same[/green]" if topic.holds else "[red]DIFFERENT[/red]",
            )
        self.console.print(table)
