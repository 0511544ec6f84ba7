"""`amps context`: name connection settings once, and use them in every command."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from amps.cli.connection import CONTEXT_NAME, SETTING_OPTIONS, Connection, as_text, login_name, with_options
from amps.cli.contexts import SETTING_NAMES, changing, contexts_path, load
from amps.cli.options import HelpfulCommand, HelpfulGroup, option
from amps.cli.server_text import ServerText
from amps.cli.settings import PASSWORD_BYTES_MAX, Found, Settings, resolve
from amps.client.protocol.command import check_text

SHOWN_PASSWORD = "(set, not shown)"
OUTPUT = option(
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or JSON for programs.",
)


@click.group(cls=HelpfulGroup, example="amps context add local -server localhost:9007 -use")
def context() -> None:
    """Name connection settings, and use them in other commands.

    Each setting of a connection is taken from the first place that has it: the option of the command, an environment
    variable (AMPS_SERVER for -server, AMPS_CA_FILE for -ca-file, also AMPS_PASSWORD), the context, the default. The
    context is the one that -context or AMPS_CONTEXT names, or else the current one ('amps context use').
    """


def _add(
    name: str, password_stdin: bool, admin: str | None, replaces: bool, use: bool, **options: Any
) -> None:
    """Add a context.

    NAME is the name to use with -context. The settings are checked, but no server is connected to. A relative path is
    stored as an absolute one.
    """
    _check_name(name)
    values = {
        key: text
        for key in SETTING_NAMES
        if key not in ("password", "admin") and (text := as_text(options[key])) is not None
    }
    for key in ("password_file", "ca_file", "cert", "key"):
        if key in values:
            values[key] = os.path.abspath(values[key])
    if admin is not None:
        values["admin"] = admin
    if "server" not in values and "admin" not in values:
        raise click.UsageError("a context needs a server: give -server, or -admin if it is for 'amps top' alone")
    if password_stdin:
        if "password_file" in values:
            raise click.UsageError("-password-stdin and -password-file are given: leave one of them out")
        values["password"] = _password()
    if "server" in values:
        _check(values)
    with changing(contexts_path()) as contexts:
        if name in contexts.settings and not replaces:
            raise click.UsageError(f"there is a context {name!r} already; replace it with -replace")
        contexts.settings[name] = values
        if use:
            contexts.current = name
    used = "; it is the current one" if contexts.current == name else f"; use it with -context {name}"
    click.echo(f"added context {name}{used}")


add = context.command("add", cls=HelpfulCommand, example="amps context add test -server tcps://h:9007 -user ana")(
    click.argument("name")(
        with_options(
            _add,
            (
                *SETTING_OPTIONS,
                option("password-stdin", "password_stdin", is_flag=True, help="Read the password to store from stdin."),
                option("admin", metavar="[HTTPS://]HOST:PORT", help="Administration interface, for 'amps top'."),
                option("replace", "replaces", is_flag=True, help="Replace the context if there is one of that name."),
                option("use", is_flag=True, help="Make it the current context."),
            ),
        )
    )
)


def _check_name(name: str) -> None:
    if not name or name.startswith("-") or not name.isprintable():
        raise click.UsageError(f"{name!r} cannot be the name of a context")


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, default="", show_default=False)
    else:
        password = sys.stdin.readline(PASSWORD_BYTES_MAX).rstrip("\r\n")
    return check_text("the password", password)


def _check(values: Mapping[str, str]) -> None:
    """Raise UsageError if the settings contradict each other or are malformed."""
    options = {key: value for key, value in values.items() if key != "password"}
    settings = resolve(options, environment={}, path=contexts_path().with_name("no contexts"))
    found = settings.found
    Connection(
        found["server"].value, found["proto"].value, found["type"].value, False, settings.value("urischeme"),
        settings.value("uriopts"),
    ).check()  # fmt: skip


@context.command("use", cls=HelpfulCommand, example="amps context use test")
@click.argument("name", type=CONTEXT_NAME, required=False)
@option("none", "no_context", is_flag=True, help="Use no context.")
def use(name: str | None, no_context: bool) -> None:
    """Make NAME the current context."""
    if (name is None) != no_context:
        raise click.UsageError("give the name of a context, or -none")
    with changing(contexts_path()) as contexts:
        if name is not None:
            contexts.named(name)
        contexts.current = name
    click.echo("no context is in use" if name is None else f"context {name} is in use")


@context.command("list", cls=HelpfulCommand, example="amps context list")
@OUTPUT
def list_(output: str) -> None:
    """List the contexts; a star marks the current one."""
    contexts = load(contexts_path())
    if output == "json":
        rows = [{"name": name, "current": name == contexts.current} for name in sorted(contexts.settings)]
        click.echo(json.dumps(rows))
        return
    if not contexts.settings:
        click.echo(f"there is no context yet ({contexts.path}); add one with 'amps context add'", err=True)
    width = max(map(len, contexts.settings), default=0)
    for name in sorted(contexts.settings):
        values = contexts.settings[name]
        place = without_password(values.get("server") or values.get("admin", ""))
        click.echo(f"{'*' if name == contexts.current else ' '} {name:{width}}  {place}")


@context.command("show", cls=HelpfulCommand, example="amps context show test")
@click.argument("name", type=CONTEXT_NAME, required=False)
@OUTPUT
def show(name: str | None, output: str) -> None:
    """Show the settings in effect and where each of them comes from.

    NAME is a context to show instead of the one in use. Passwords are not shown.
    """
    settings = resolve({}, name)
    found = shown(settings)
    if output == "json":
        rows = {key: {"value": value, "source": source} for key, (value, source) in found.items()}
        click.echo(json.dumps({"context": settings.context, "settings": rows}, ensure_ascii=False))
        return
    for note in settings.notes:
        click.echo(note, err=True)
    click.echo(f"context   {settings.context or '(none)'}")
    keys, values = max(map(len, found)), max(len(value) for value, _ in found.values())
    for key, (value, source) in found.items():
        click.echo(f"{key:{keys}}  {value:{values}}  {source}")


def shown(settings: Settings) -> dict[str, tuple[str, str]]:
    """The settings as they may be shown: value and source. The user without a setting is the login name."""
    found = dict(settings.found)
    if "user" not in found:
        found["user"] = Found(login_name(), 0, "default: the login name")
    result = {}
    for key in SETTING_NAMES:
        if key in found:
            value = found[key].value
            if key == "password":
                value = SHOWN_PASSWORD
            elif key in ("server", "admin"):
                value = without_password(value)
            result[key] = value, found[key].source
    return result


def without_password(place: str) -> str:
    """A server or the address of an administration interface without its password."""
    text = ServerText.parse(place)
    if text.credentials is None:
        return place
    return str(text._replace(credentials=text.credentials.partition(":")[0]))


@context.command("remove", cls=HelpfulCommand, example="amps context remove test")
@click.argument("name", type=CONTEXT_NAME)
def remove(name: str) -> None:
    """Remove the context NAME."""
    with changing(contexts_path()) as contexts:
        contexts.named(name)
        del contexts.settings[name]
        was_current = contexts.current == name
        if was_current:
            contexts.current = None
    click.echo(f"removed context {name}{'; no context is in use now' if was_current else ''}")
