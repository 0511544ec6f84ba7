"""`amps serve`: run a server, with a configuration file or with defaults."""

from pathlib import Path

import click

from amps.cli.connection import FILE
from amps.cli.options import HelpfulCommand, option

DEFAULT_PORT = 9007
DEFAULT_DATA_DIRECTORY = Path("amps-data")


@click.command(cls=HelpfulCommand, example="amps serve -port 9007 -data-directory ./amps-data")
@click.argument("config", type=FILE, required=False)
@option(
    "data-directory",
    "data_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Where the server keeps its data, without CONFIG. [default: ./{DEFAULT_DATA_DIRECTORY}]",
)
@option(
    "port",
    type=click.IntRange(0, 65535),
    help=f"Port of the transport on 127.0.0.1, without CONFIG. [default: {DEFAULT_PORT}]",
)
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Value of a variable in CONFIG.")
@click.pass_context
def serve(
    context: click.Context,
    config: Path | None,
    data_directory: Path | None,
    port: int | None,
    defines: tuple[str, ...],
) -> None:
    """Run a server until Ctrl-C or SIGTERM.

    With CONFIG it is the same as `ampServer CONFIG`. Without CONFIG, it listens on 127.0.0.1 for every message type
    and records every topic below the data directory.
    """
    # Only this command needs the server; the import here keeps other commands fast.
    from amps.config import embedded_default
    from amps.server import main as server

    if config is not None:
        if data_directory is not None or port is not None:
            raise click.UsageError("-data-directory and -port are for running without CONFIG; set them there")
        context.exit(server.main([str(config), *(f"-D{define}" for define in defines)]))
    if defines:
        raise click.UsageError("-D sets variables of CONFIG; give CONFIG, or leave out -D")
    directory = data_directory or DEFAULT_DATA_DIRECTORY
    context.exit(server.start(embedded_default(directory, DEFAULT_PORT if port is None else port)))
