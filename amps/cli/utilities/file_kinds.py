"""`amps_file`: show the kinds of the server's files."""

import glob
from pathlib import Path

import click

from amps.cli.failures import describe, tell
from amps.cli.utilities.common import SETTINGS, UtilityCommand, version_option
from amps.journal.kinds import kind_of


@click.command(cls=UtilityCommand, context_settings=SETTINGS, example="amps_file ./amps-data/journal/*")
@click.argument("names", metavar="FILES...", nargs=-1, required=True)
@version_option
@click.pass_context
def main(context: click.Context, names: tuple[str, ...]) -> None:
    """Show the kind of each file and the version of its format. FILES may be patterns (*, ?, [...]).

    Exit status 1 if a file cannot be read.
    """
    failed = False
    for name in names:
        for path in (
            [Path(name)] if Path(name).exists() else sorted(map(Path, glob.glob(name))) or [Path(name)]
        ):
            try:
                kind = kind_of(path)
            except OSError as error:
                tell(describe(error))
                failed = True
                continue
            text = f"AMPS {kind.name} {kind.version}" if kind is not None else "not an AMPS file"
            click.echo(f"{path.name}: {text}")
    if failed:
        context.exit(1)


if __name__ == "__main__":
    main()
