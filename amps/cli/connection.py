"""The options for a server, and the client created from the settings.

`-server [scheme://][user:password@]host:port` together with protocol, message type, scheme and URI options becomes a
connection string; its value may also be a whole connection string, or the beginning of one. `settings` has the rules
for values from elsewhere. The password is never shown: messages use `safe_uri`.
"""

import functools
import getpass
import importlib
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from amps.cli.contexts import SETTING_NAMES, contexts_path, load
from amps.cli.options import Decorator, option
from amps.cli.server_text import ServerText
from amps.cli.settings import OPTION, Found, Settings, resolve, truth
from amps.client import Client
from amps.client.errors import ConnectionException
from amps.client.protocol.command import check_text
from amps.client.protocol.store_interfaces import PublishStore
from amps.client.servers.auth import Authenticator
from amps.client.uri import PROTOCOLS, parse_uri

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Connection:
    """The connection settings of one command."""

    server: str
    protocol: str = "amps"
    message_type: str = "json"
    secure: bool = False
    scheme: str | None = None
    uri_options: str | None = None
    authenticator: str | None = None
    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    """None: the user inside `server`, or the login name."""
    password: str | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """The connection string. Parts in `server` take precedence over the other settings."""
        text = ServerText.parse(self.server)
        credentials = text.credentials
        if credentials is None:
            credentials = quote(login_name() if self.user is None else self.user, safe="")
            if self.password is not None:
                credentials += f":{quote(self.password, safe='')}"
        queries = [text.query, (self.uri_options or "").lstrip("?")]
        return str(
            ServerText(
                text.scheme or self.scheme or ("tcps" if self.secure else "tcp"),
                credentials,
                text.address,
                text.path or f"{self.protocol}/{self.message_type}",
                "&".join(part for part in queries if part),
            )
        )

    @property
    def wire_type(self) -> str:
        """The message type of the connection."""
        return parse_uri(self.uri).message_type or self.message_type

    def check(self) -> None:
        """Raise UsageError for a malformed server, before anything is connected."""
        try:
            parse_uri(self.uri)
        except ConnectionException as error:
            raise click.UsageError(str(error)) from None

    def second(self, server: str) -> "Connection":
        """The connection to a second server. It has the same settings, but for credentials, which are those in
        `server`.
        """
        made = replace(self, server=server, user=None, password=None)
        made.check()
        if not made.is_encrypted:
            made = replace(made, ca_file=None, certificate=None, key=None)
        return made

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return parse_uri(self.uri).scheme == "tcps"

    @property
    def safe_uri(self) -> str:
        """The connection string without the password."""
        return parse_uri(self.uri).safe_text

    def tls_context(self) -> ssl.SSLContext | None:
        if not self.is_encrypted:
            if self.ca_file or self.certificate or self.key:
                raise click.UsageError(
                    "-ca-file, -cert and -key are for TLS: write -server tcps://HOST:PORT, or add -secure yes"
                )
            return None
        if self.key is not None and self.certificate is None:
            raise click.UsageError("-key is the private key of -cert, which is missing")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # includes ssl.SSLError
            raise click.UsageError(f"-ca-file {self.ca_file} holds no usable certificate: {error}") from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                key = f" with -key {self.key}" if self.key is not None else " (which must hold its key too)"
                raise click.UsageError(f"-cert {self.certificate}{key} cannot be used: {error}") from None
        return context

    def make_authenticator(self) -> Authenticator | None:
        """Return the result of `package.module:factory`, called without arguments; None without the option."""
        if self.authenticator is None:
            return None
        module_name, _, attribute = self.authenticator.partition(":")
        if not module_name or not attribute:
            raise self._no_authenticator("there is no module or no factory in that")
        try:
            made: Authenticator = getattr(importlib.import_module(module_name), attribute)()
        except Exception as error:  # the user's own code may raise any exception
            raise self._no_authenticator(f"{error.__class__.__name__}: {error}") from error
        if not callable(getattr(made, "authenticate", None)):
            raise self._no_authenticator(f"its result {made!r} has no method `authenticate`")
        return made

    def _no_authenticator(self, why: str) -> click.UsageError:
        return click.UsageError(f"-authenticator {self.authenticator}: {why}; write package.module:factory")

    def client(self, *, publish_store: PublishStore | None = None, **more: Any) -> Client:
        """Return a client for this server, not connected yet."""
        return Client(
            None,
            self.uri,
            authenticator=self.make_authenticator(),
            tls=self.tls_context(),
            publish_store=publish_store,
            **more,
        )


def login_name() -> str:
    """Return the name of the login user; `amps` if the process has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "amps"


class HeaderText(click.ParamType[str]):
    """Text that is sent to the server: not empty, and valid in the encoding of the locale."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_text("it", value) or self.fail("it is empty", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


HEADER_TEXT = HeaderText()


class YesNo(click.ParamType[bool]):
    """`true`/`1`/`yes` or `false`/`0`/`no`."""

    name = "true|false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        lowered = str(value).lower()
        if lowered in ("true", "1", "yes"):
            return True
        if lowered in ("false", "0", "no"):
            return False
        return self.fail(f"{value!r} is neither true, 1, yes nor false, 0, no", param, ctx)


class ServerOption(click.Option):
    """An option whose value may come from elsewhere, and is needed: help lists it with the required ones."""

    listed_as_required = True


class ContextName(click.ParamType[str]):
    """The name of a context."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            names = sorted(load(contexts_path()).settings)
        except click.ClickException:
            names = []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


CONTEXT_NAME = ContextName()
SETTING_OPTIONS = (
    option(
        "server",
        cls=ServerOption,
        metavar="[SCHEME://][USER:PASSWORD@]HOST:PORT",
        help="Server to connect to; tcps:// is TLS. May be a connection string: tcp://HOST:PORT/amps/json.",
    ),
    option(
        "proto",
        None,
        "prot",
        type=click.Choice(["amps", "json"]),
        help="Protocol of the transport; json is another name of amps.  [default: amps]",
    ),
    option("type", help="Message type.  [default: json]"),
    option("user", help="User name.  [default: the login name]"),
    option("password-file", "password_file", type=FILE, help="File with the password in its first line."),
    option("secure", type=YesNo(), help="Connect with TLS (scheme tcps)."),
    option("urischeme", help="Scheme of the connection string; overrides -secure."),
    option("uriopts", metavar="NAME=VALUE&…", help="Options of the connection string."),
    option("authenticator", metavar="MODULE:FACTORY", help="Factory of the authenticator."),
    option("ca-file", "ca_file", "cafile", type=FILE, help="Certificates to trust, for TLS."),
    option("cert", type=FILE, help="Certificate to present, for TLS."),
    option("key", type=FILE, help="Private key of -cert."),
)
"""The options for a server. Each can also be set by a variable, such as AMPS_TYPE, and in a context."""
CONNECTION_OPTIONS = (
    *SETTING_OPTIONS,
    option("context", type=CONTEXT_NAME, help="Context to take settings from; see 'amps context --help'."),
)
OPTION_NAMES = tuple(name for name in SETTING_NAMES if name not in ("password", "admin"))


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets one argument `connection` for all of them."""

    @functools.wraps(command)
    def with_connection(**arguments: Any) -> Any:
        options = {name: as_text(arguments.pop(name)) for name in OPTION_NAMES}
        settings = resolve(options, arguments.pop("context"))
        for note in settings.notes:
            click.echo(note, err=True)
        return command(connection=connection_of(settings), **arguments)

    return with_options(with_connection, CONNECTION_OPTIONS)


def with_options(command: Callable[..., Any], options: Iterable[Decorator]) -> Callable[..., Any]:
    """Add options to a command, so that help lists them in this order."""
    for add in reversed(list(options)):
        command = add(command)
    return command


def as_text(value: Any) -> str | None:
    """The text of an option's value, as a variable would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def connection_of(settings: Settings) -> Connection:
    """The connection with these settings. Raises UsageError if there is no server, or a value is wrong."""
    if "server" not in settings.found:
        raise click.UsageError(
            "there is no server: give -server, set AMPS_SERVER, or add a context ('amps context add')"
        )
    server = settings.found["server"]
    proto = settings.found["proto"]
    if proto.value not in PROTOCOLS:
        raise click.UsageError(f"{proto.source} is {proto.value!r}; there are {', '.join(PROTOCOLS)}")
    connection = Connection(
        server.value,
        proto.value,
        settings.found["type"].value,
        truth(settings.found["secure"]) if "secure" in settings.found else False,
        settings.value("urischeme"),
        settings.value("uriopts"),
        settings.value("authenticator"),
        user=settings.value("user"),
        password=settings.password(),
    )
    connection.check()
    files = {
        name: _file(found)
        for name in ("ca_file", "cert", "key")
        if (found := settings.found.get(name)) is not None
        # Only an option is refused if it has no use: variables and contexts may be meant for several servers.
        and (found.rank == OPTION or connection.is_encrypted)
    }
    return replace(
        connection,
        ca_file=files.get("ca_file"),
        certificate=files.get("cert"),
        key=files.get("key"),
    )


def _file(found: Found) -> Path:
    if not Path(found.value).is_file():
        raise click.UsageError(f"{found.source}: there is no file {found.value}")
    return Path(found.value)
