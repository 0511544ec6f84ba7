"""`amps publish`: publish messages from files or standard input and wait for their acknowledgements."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amps.cli.connection import FILE, HEADER_TEXT, Connection, connection_options
from amps.cli.failures import tell
from amps.cli.options import DELAY, MOMENT, POSITIVE_NUMBER, HelpfulCommand, option
from amps.cli.publishing import ReliablePublisher
from amps.cli.records import RecordError, RecordSource
from amps.client import PublishArgs

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOW_EVERY_S = 0.1
SLEEP_S_MAX = 1.0  # between two checks for acknowledgements
LOOK_EVERY = 64  # messages between two readings of the clock


class Pace:
    """Limits a loop to a number of messages per second, on average from its start."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.started = time.monotonic()

    def wait(self, number: int, look: Callable[[], None]) -> None:
        """Wait until message `number` (from 0) is due. Calls `look` at intervals."""
        if self.rate is not None:
            while (ahead_s := self.started + number / self.rate - time.monotonic()) > 0:
                time.sleep(min(ahead_s, SLEEP_S_MAX))
                look()


class Meter:
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, bar: "tuple[Progress, TaskID] | None" = None) -> None:
        self.bar = bar
        self.next_look = 0.0

    def show(self, sources: list[RecordSource], publisher: ReliablePublisher, final: bool = False) -> None:
        if self.bar is None:
            return
        progress, task = self.bar
        now = time.monotonic()
        if now < self.next_look and not final:
            return
        self.next_look = now + SHOW_EVERY_S
        totals = [source.total_bytes for source in sources]
        known = [total for total in totals if total is not None]
        progress.update(
            task,
            completed=sum(source.consumed_bytes for source in sources),
            total=sum(known) if len(known) == len(totals) else None,
            published=publisher.published,
            acknowledged=publisher.acknowledged,
        )


@contextmanager
def meter() -> Iterator[Meter]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield Meter()
        return
    # The import here keeps the command fast without a terminal.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[published]:,} published, {task.fields[acknowledged]:,} acknowledged"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Meter((progress, progress.add_task("", total=None, published=0, acknowledged=0)))


@click.command(
    cls=HelpfulCommand,
    example="amps publish -server localhost:9007 -topic orders -file a.json.gz",
)
@connection_options
@option("topic", type=HEADER_TEXT, required=True, help="Topic to publish to.")
@option(
    "file",
    "files",
    type=FILE,
    multiple=True,
    help="File of messages, also .gz or .zip. If an archive has members 1, 2, …, only these are published, "
    "each as one message; members of any other archive are read line by line. Empty lines are "
    "skipped. May be given several times; default: standard input.",
)
@option(
    "delimiter",
    type=click.IntRange(0, 255),
    default=10,
    show_default=True,
    help="Decimal code of the byte between messages.",
)
@option("delta", is_flag=True, help="Publish changed fields of records (delta_publish).")
@option(
    "delay",
    "delay_s",
    type=DELAY,
    help="Queues deliver each message only after this time, for example 500ms, 30s or 2h. Subscribers get it at once.",
)
@option(
    "not-before",
    "not_before",
    type=MOMENT,
    help="Queues deliver each message only from this time on: 2027-01-31T09:30:00+01:00 (UTC without a zone), or UNIX "
    "seconds.",
)
@option("rate", type=POSITIVE_NUMBER, help="Messages per second; .25 is one in 4 s.")
@option(
    "timeout",
    "timeout_s",
    type=POSITIVE_NUMBER,
    default=30.0,
    show_default=True,
    help="Seconds to wait for a lost server, for a server that accepts no messages, and for an acknowledgement.",
)
@click.pass_context
def publish(
    context: click.Context,
    connection: Connection,
    topic: str,
    files: tuple[Path, ...],
    delimiter: int,
    delta: bool,
    delay_s: float | None,
    not_before: datetime | None,
    rate: float | None,
    timeout_s: float,
) -> None:
    """Publish messages, one per line.

    Ends when the server has acknowledged every message as persisted. Unacknowledged messages of a lost connection
    are sent again.
    """
    if delay_s is not None and not_before is not None:
        raise click.UsageError("-delay and -not-before are two ways to delay a message: leave one of them out")
    sources = [RecordSource(path, delimiter) for path in files] or [
        RecordSource(None, delimiter, sys.stdin.buffer)
    ]
    publisher = ReliablePublisher(lambda store: connection.client(publish_store=store), reconnect_s=timeout_s)
    publisher.open()
    fields: PublishArgs = {}
    if delay_s is not None:
        fields["delay"] = delay_s
    if not_before is not None:
        fields["not_before"] = not_before
    started = time.monotonic()
    try:
        with meter() as shown:
            pace = Pace(rate)
            for source in sources:
                for record in source:
                    pace.wait(publisher.published, publisher.watch)
                    publisher.publish(topic, record, delta=delta, **fields)
                    if rate is not None or publisher.published % LOOK_EVERY == 0:
                        shown.show(sources, publisher)
                if source.left_out:
                    tell(f"{source.path}: left out {', '.join(source.left_out)}", "note: ")
            publisher.finish(timeout_s)
            shown.show(sources, publisher, final=True)
    except RecordError as error:
        publisher.finish(timeout_s)
        tell(str(error))
        context.exit(1)
    finally:
        elapsed_s = time.monotonic() - started
        publisher.close()  # it may still receive refusals
        done = publisher.acknowledged - publisher.failures
        click.echo(f"total messages published: {done} ({done / max(elapsed_s, 1e-9):.2f}/s)")
    if publisher.failures:
        tell(f"the server refused {publisher.failures} messages, first {publisher.first_failure}")
        context.exit(1)
