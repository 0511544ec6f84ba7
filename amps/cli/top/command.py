"""`amps top`: show clients, subscriptions, topics, queues, destinations and SOW topics of a running server."""

import json
import shutil
import ssl
import sys
import time
from pathlib import Path

import click

from amps.cli.connection import CONTEXT_NAME, FILE
from amps.cli.options import POSITIVE_NUMBER, HelpfulCommand, option
from amps.cli.settings import CONTEXT, Found, Settings, resolve
from amps.cli.top.interface import DEFAULT_ADDRESS, AdminInterface
from amps.cli.top.state import VIEWS, read_values

COLUMNS_WITHOUT_TERMINAL = 160
SIGNAL_STATUS = 128
"""Exit status of a program that a signal ended: this and the number of the signal."""


@click.command(cls=HelpfulCommand, example="amps top -admin http://localhost:8085 -view queues")
@option(
    "admin",
    metavar="[HTTP[S]://][USER:PASSWORD@]HOST[:PORT]",
    help=f"Administration interface of the server.  [default: {DEFAULT_ADDRESS}]",
)
@option("user", help="User of the administration interface.")
@option("password-file", "password_file", type=FILE, help="File with the password in its first line.")
@option("ca-file", "ca_file", "cafile", type=FILE, help="Certificates to trust, for https.")
@option("context", type=CONTEXT_NAME, help="Context to take settings from; see 'amps context --help'.")
@option(
    "interval", "interval_s", type=POSITIVE_NUMBER, default=2.0, show_default=True, help="Seconds between readings."
)
@option("view", type=click.Choice(list(VIEWS)), help="The view to begin with; with -once, the only one.")
@option("once", is_flag=True, help="Write the values once and end; for scripts.")
@option("output", type=click.Choice(["text", "json"]), help="Output of -once.  [default: text]")
@click.pass_context
def top(
    context_: click.Context,
    admin: str | None,
    user: str | None,
    password_file: Path | None,
    ca_file: Path | None,
    context: str | None,
    interval_s: float,
    view: str | None,
    once: bool,
    output: str | None,
) -> None:
    """Show clients, subscriptions, topics, queues, destinations of replication and SOW topics of a running server.

    Needs the administration interface: <Admin> in the configuration of the server. Clients and topics without
    subscriptions are not shown, because the interface does not list them. Rates are those of the last interval.

    Keys: 1 to 6 and tab change the view, s and S the column of the order, r reverses it, p pauses, j and k scroll, q
    quits. While the server does not answer, the last values stay and their age is shown.
    """
    if output is not None and not once:
        raise click.UsageError("-output is for -once")
    options = {
        "admin": admin,
        "user": user,
        "password_file": str(password_file) if password_file is not None else None,
        "ca_file": str(ca_file) if ca_file is not None else None,
    }
    interface = interface_of(resolve(options, context))
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the live view needs a terminal; use -once elsewhere")
    first = read_values(interface.read(), time.monotonic())
    if once:
        if output == "json":
            values = first.as_json()
            click.echo(json.dumps(values if view is None else values[view], ensure_ascii=False))
            return
        from rich.console import Console

        from amps.cli.top.view import write_once

        width = shutil.get_terminal_size((COLUMNS_WITHOUT_TERMINAL, 24)).columns
        write_once(Console(width=width), first, list(VIEWS) if view is None else [view])
        return
    # The imports here keep other commands fast.
    from amps.cli.top.live import run
    from amps.cli.top.terminal import Terminated
    from amps.cli.top.view import Choice

    try:
        run(interface, interval_s, first, Choice() if view is None else Choice(view))
    except Terminated as ended:
        context_.exit(SIGNAL_STATUS + ended.number)


def interface_of(settings: Settings) -> AdminInterface:
    """The interface of the settings. Credentials of a context are used only with the interface of that context."""
    admin = settings.found.get("admin", Found(DEFAULT_ADDRESS, CONTEXT + 1, "default"))
    names = [
        name
        for name in ("user", "password", "password_file")
        if name in settings.found and (settings.found[name].rank != CONTEXT or admin.rank == CONTEXT)
    ]
    own = Settings({name: settings.found[name] for name in names})
    interface = AdminInterface.parse(admin.value, own.value("user") or "", own.password())
    if interface.scheme != "https":
        return interface
    ca_file = settings.value("ca_file")
    try:
        tls = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise click.UsageError(f"{settings.found['ca_file'].source} {ca_file} cannot be used: {error}") from None
    return AdminInterface.parse(admin.value, own.value("user") or "", own.password(), tls)
