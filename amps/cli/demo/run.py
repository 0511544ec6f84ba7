"""The frame of both demonstrations: their data directory, their end by signals, their exit status."""

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import click

from amps.cli.demo.display import Display
from amps.cli.demo.flights import FlightsMissing
from amps.cli.demo.proof import AcknowledgedLost
from amps.cli.demo.server import ServerFailed
from amps.client.errors import AMPSException

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

Story = Callable[[Path, Display, ExitStack], bool]
"""The steps of a demonstration, for an empty data directory; returns whether the proof holds."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block by an exception, as Ctrl-C does, so that it is cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        for each in ENDING_SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    before = {
        each: signal.signal(each, end)
        for each in ENDING_SIGNALS
        if signal.getsignal(each) is not signal.SIG_IGN  # nohup
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def run_demo(context: click.Context, data_directory: Path | None, story: Story) -> None:
    """Run a demonstration; on failure end the command through the context."""
    display = Display()
    try:
        with ExitStack() as cleanup:
            cleanup.enter_context(ended_by_signals())
            directory = make_data_directory(data_directory, cleanup)
            if not story(directory, display, cleanup):
                context.exit(1)
    except FlightsMissing as error:
        raise click.UsageError(str(error)) from None
    except (AMPSException, ServerFailed, AcknowledgedLost, OSError) as error:
        display.say(f"[bold red]failed:[/bold red] {error}")
        context.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def make_data_directory(asked_for: Path | None, cleanup: ExitStack) -> Path:
    """Return an empty directory: the requested one, or a temporary one that is removed at the end."""
    try:
        if asked_for is None:
            temporary = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="amps-demo-"))
            directory = Path(temporary) / "data"
        else:
            directory = asked_for
            if directory.exists() and any(directory.iterdir()):
                raise click.UsageError(f"{directory} is not empty: its messages would be replayed as well")
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    except OSError as error:
        raise click.UsageError(f"cannot make the data directory: {error}") from None
