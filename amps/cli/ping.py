"""`amps ping`: test whether a client can connect and log on."""

import click

from amps.cli.connection import Connection, connection_options
from amps.cli.failures import tell
from amps.cli.options import POSITIVE_NUMBER, HelpfulCommand, option
from amps.client.errors import AMPSException


@click.command(cls=HelpfulCommand, example="amps ping -server localhost:9007 -type json")
@connection_options
@option(
    "timeout", "timeout_s", type=POSITIVE_NUMBER, default=10.0, show_default=True, help="Seconds to wait."
)
@click.pass_context
def ping(context: click.Context, connection: Connection, timeout_s: float) -> None:
    """Connect to a server and log on."""
    try:
        with connection.client(timeout=timeout_s):
            pass
    except (AMPSException, OSError) as error:
        tell(f"({error.__class__.__name__}: {error})", "Unable to connect to AMPS ")
        context.exit(1)
    click.echo(f"Successfully connected to {connection.safe_uri}")
