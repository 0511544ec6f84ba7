"""The options for a server, and the client created from them.

`-server [scheme://][user:password@]host:port` together with protocol, message type, scheme and URI options becomes a
connection string; its value may also be a whole connection string, or the beginning of one. The password is never
shown: messages use `safe_uri`.
"""

import functools
import getpass
import importlib
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from click.core import ParameterSource

from amps.cli.options import option
from amps.client import Client
from amps.client.errors import ConnectionException
from amps.client.protocol.command import check_text
from amps.client.protocol.store_interfaces import PublishStore
from amps.client.servers.auth import Authenticator
from amps.client.uri import parse_uri

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Connection:
    """The server options of one command line."""

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
    type_was_given: bool = False
    """Whether the user set `message_type`; False for the default."""

    @property
    def uri(self) -> str:
        """The connection string. Parts in `-server` take precedence over the other options."""
        told, location = self._told_scheme
        location, _, own_query = location.partition("?")
        authority, _, path = location.partition("/")
        credentials, at, address = authority.rpartition("@")
        if not at:
            credentials = quote(login_name(), safe="")
        scheme = told or self.scheme or ("tcps" if self.secure else "tcp")
        path = path.rstrip("/") or f"{self.protocol}/{self.message_type}"
        queries = [own_query, (self.uri_options or "").lstrip("?")]
        query = "&".join(part for part in queries if part)
        return f"{scheme}://{credentials}@{address}/{path}{'?' if query else ''}{query}"

    @property
    def _told_scheme(self) -> tuple[str, str]:
        """The scheme in `-server`, empty if there is none, and the rest."""
        found = _SCHEME.match(self.server)
        return (found[1], self.server[found.end() :]) if found is not None else ("", self.server)

    @property
    def wire_type(self) -> str:
        """The message type of the connection."""
        return parse_uri(self.uri).message_type or self.message_type

    def check(self) -> None:
        """Raise UsageError for contradictory options, before anything is connected."""
        told, _ = self._told_scheme
        if told and self.scheme is not None and self.scheme != told:
            raise click.UsageError(
                f"-server has the scheme {told}, and -urischeme {self.scheme}: leave one of them out"
            )
        if told and self.secure and self.scheme is None and told != "tcps":
            raise click.UsageError(f"-secure yes is TLS, and -server has the scheme {told}: write tcps://")
        try:
            parsed = parse_uri(self.uri)
        except ConnectionException as error:
            raise click.UsageError(str(error)) from None
        if self.type_was_given and parsed.message_type not in (None, self.message_type):
            raise click.UsageError(
                f"-type is {self.message_type}, and -server has {parsed.message_type}: leave one of them out"
            )

    @property
    def safe_uri(self) -> str:
        return parse_uri(self.uri).safe_text

    def tls_context(self) -> ssl.SSLContext | None:
        if parse_uri(self.uri).scheme != "tcps":
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


CONNECTION_OPTIONS = (
    option(
        "server",
        required=True,
        metavar="[SCHEME://][USER:PASSWORD@]HOST:PORT",
        help="Server to connect to; tcps:// is TLS. May be a connection string: tcp://HOST:PORT/amps/json.",
    ),
    option(
        "proto",
        "protocol",
        "prot",
        type=click.Choice(["amps", "json"]),
        default="amps",
        show_default=True,
        help="Protocol of the transport; json is another name of amps.",
    ),
    option("type", "message_type", default="json", show_default=True, help="Message type."),
    option("secure", type=YesNo(), default=False, help="Connect with TLS (scheme tcps)."),
    option("urischeme", "scheme", help="Scheme of the connection string; overrides -secure."),
    option("uriopts", "uri_options", metavar="NAME=VALUE&…", help="Options of the connection string."),
    option("authenticator", metavar="MODULE:FACTORY", help="Factory of the authenticator."),
    option("ca-file", "ca_file", "cafile", type=FILE, help="Certificates to trust, for TLS."),
    option("cert", "certificate", type=FILE, help="Certificate to present, for TLS."),
    option("key", type=FILE, help="Private key of -cert."),
)
CONNECTION_FIELDS = (
    "server",
    "protocol",
    "message_type",
    "secure",
    "scheme",
    "uri_options",
    "authenticator",
    "ca_file",
    "certificate",
    "key",
)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets one argument `connection` for all of them."""

    @functools.wraps(command)
    def with_connection(**arguments: Any) -> Any:
        source = click.get_current_context().get_parameter_source("message_type")
        connection = Connection(
            **{name: arguments.pop(name) for name in CONNECTION_FIELDS},
            type_was_given=source is not ParameterSource.DEFAULT,
        )
        connection.check()
        return command(connection=connection, **arguments)

    decorated: Callable[..., Any] = with_connection
    for add in reversed(CONNECTION_OPTIONS):
        decorated = add(decorated)
    return decorated
