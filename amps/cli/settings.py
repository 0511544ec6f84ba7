"""Where each connection setting comes from: an option, the environment, a context, or the default, in this order.

`-ca-file`, `AMPS_CA_FILE` and `ca_file` in a context are one setting. A scheme, a user and a message type inside a
server (`tcps://ana@host:9007/amps/fix`) count as settings of the same source as the server.

Passwords are sent to no server that the user did not mean them for. The user, the password and the authenticator of a
context are used only with the server of that context. A password is used with no other user than the one that its
source names, if it names one: with `AMPS_USER=ana` and `-user bob`, `AMPS_PASSWORD` is not used.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import click

from amps.cli.contexts import SETTING_NAMES, Contexts, Unreadable, contexts_path, load
from amps.cli.server_text import ServerText
from amps.client.protocol.command import check_text

OPTION, ENVIRONMENT, CONTEXT, DEFAULT = range(4)
"""The ranks of sources: a lower one takes precedence."""
CONTEXT_VARIABLE = "AMPS_CONTEXT"
CREDENTIALS = frozenset(("user", "password", "password_file", "authenticator"))
DEFAULTS: Mapping[str, str] = {"proto": "amps", "type": "json", "secure": "false"}
PASSWORD_BYTES_MAX = 64 * 1024


class Found(NamedTuple):
    """The value of a setting. `source` names its origin: `-type`, `AMPS_TYPE`, `type of context prod`."""

    value: str
    rank: int
    source: str


@dataclass(frozen=True)
class Settings:
    """The settings in effect, by name; a setting without any value is missing. `context`: the name of the context."""

    found: Mapping[str, Found]
    context: str | None = None
    notes: tuple[str, ...] = ()
    """What the user may not expect: values that others take precedence over."""

    def value(self, name: str) -> str | None:
        """The value of a setting, None if there is none."""
        found = self.found.get(name)
        return None if found is None else found.value

    def password(self) -> str | None:
        """The password; read from its file now. Raises UsageError."""
        if "password_file" in self.found:
            return read_password(self.found["password_file"])
        return self.value("password")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return f"AMPS_{name.upper()}"


def option_of(name: str) -> str:
    """The option of a setting."""
    return f"-{name.replace('_', '-')}"


def resolve(
    options: Mapping[str, str | None],
    chosen: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    path: Path | None = None,
) -> Settings:
    """Find the value of each setting. `options`: values of the command line; `chosen`: the option `-context`.

    Raises UsageError and ClickException.
    """
    sources = [{name: Found(text, OPTION, option_of(name)) for name, text in options.items() if text is not None}]
    sources.append(
        {
            name: Found(text, ENVIRONMENT, variable_of(name))
            for name in SETTING_NAMES
            if (text := environment.get(variable_of(name)))
        }
    )
    name = chosen or environment.get(CONTEXT_VARIABLE)
    path = contexts_path(environment) if path is None else path
    try:
        contexts = load(path)
    except Unreadable:
        if name is not None:
            raise
        contexts = Contexts(path)  # services and sudo may run in a home directory that they may not read
    name = name or contexts.current
    sources.append(_of_context(contexts, name))
    sources.append({key: Found(text, DEFAULT, "default") for key, text in DEFAULTS.items()})
    for source in sources:
        if "password" in source and "password_file" in source:
            both = f"{source['password'].source} and {source['password_file'].source}"
            raise click.UsageError(f"{both} are given: leave one of them out")
    return Settings(_settled(sources), name, _notes(sources, chosen))


def _of_context(contexts: Contexts, name: str | None) -> dict[str, Found]:
    if name is None:
        return {}
    values = contexts.named(name)
    return {key: Found(text, CONTEXT, f"{key} of context {name}") for key, text in values.items()}


def _notes(sources: list[dict[str, Found]], chosen: str | None) -> tuple[str, ...]:
    """A note if a context named on the command line gives way to the environment."""
    if chosen is None:
        return ()
    beaten = sorted(name for name in sources[ENVIRONMENT] if name in sources[CONTEXT] and name not in sources[OPTION])
    return tuple(
        f"note: {sources[ENVIRONMENT][name].source} takes precedence over {sources[CONTEXT][name].source}"
        for name in beaten
    )


def _settled(sources: list[dict[str, Found]]) -> dict[str, Found]:
    """The values in effect."""
    found: dict[str, Found] = {}
    for source in reversed(sources):
        found.update(source)
    server = found.get("server")
    if server is not None:
        if server.rank != CONTEXT:
            sources[CONTEXT] = {k: v for k, v in sources[CONTEXT].items() if k not in CREDENTIALS}
        text = ServerText.parse(server.value)
        text = _with_scheme(text, server, sources, found)
        text = _with_type(text, server, found)
        text = _with_credentials(text, server, sources, found)
        found["server"] = server._replace(value=str(text))
    else:
        _settle_credentials(sources, found)
    return found


def _with_scheme(
    text: ServerText, server: Found, sources: list[dict[str, Found]], found: dict[str, Found]
) -> ServerText:
    """Settle `urischeme` and `secure`, and a scheme inside the server. Of one source, `urischeme` has precedence."""
    for source in sources:
        told = text.scheme if source.get("server") is server else ""
        scheme, secure = source.get("urischeme"), source.get("secure")
        if told and scheme is not None and scheme.value != told:
            raise click.UsageError(
                f"{server.source} has the scheme {told}, and {scheme.source} {scheme.value}: leave one of them out"
            )
        if told and told != "tcps" and scheme is None and secure is not None and truth(secure):
            raise click.UsageError(
                f"{secure.source} yes is TLS, and {server.source} has the scheme {told}: write tcps://"
            )
        if told or scheme is not None or secure is not None:
            for name, value in (("urischeme", scheme), ("secure", secure)):
                found.pop(name, None)
                if value is not None:
                    found[name] = value
            return text if told else text._replace(scheme="")
    return text


def _with_type(text: ServerText, server: Found, found: dict[str, Found]) -> ServerText:
    """Settle `type`, and a message type inside the server."""
    given, told = found["type"], text.message_type
    if told is None or given.value == told:
        return text
    if given.rank == server.rank:
        raise click.UsageError(
            f"{given.source} is {given.value}, and {server.source} has {told}: leave one of them out"
        )
    if given.rank < server.rank:
        return text.with_message_type(given.value)
    found["type"] = server._replace(value=told)
    return text


def _with_credentials(
    text: ServerText, server: Found, sources: list[dict[str, Found]], found: dict[str, Found]
) -> ServerText:
    """Move a user and a password inside the server to the settings of its source, and settle all."""
    if text.credentials is not None:
        name, colon, secret = text.credentials.partition(":")
        source = sources[server.rank]
        user, password = source.get("user"), source.get("password") or source.get("password_file")
        if user is not None and user.value != unquote(name):
            raise click.UsageError(
                f"{server.source} has the user {unquote(name)}, and {user.source} {user.value}: leave one of them out"
            )
        if colon and password is not None:
            raise click.UsageError(f"{server.source} has a password, and {password.source}: leave one of them out")
        source["user"] = server._replace(value=unquote(name))
        if colon:
            source["password"] = server._replace(value=unquote(secret))
    _settle_credentials(sources, found)
    return text._replace(credentials=None)


def _settle_credentials(sources: list[dict[str, Found]], found: dict[str, Found]) -> None:
    """Settle the user, the password and the authenticator."""
    for name in CREDENTIALS:
        found.pop(name, None)
    for source in sources:
        own, user = source.get("user"), found.get("user")
        has_password = "password" in found or "password_file" in found
        if not has_password and (own is None or user is None or own.value == user.value):
            found.update({name: source[name] for name in ("password", "password_file") if name in source})
        for name in ("user", "authenticator"):
            if name in source:
                found.setdefault(name, source[name])


def truth(found: Found) -> bool:
    """The value of `true`/`1`/`yes` or `false`/`0`/`no`. Raises UsageError that names the source."""
    lowered = found.value.lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise click.UsageError(f"{found.source}: {found.value!r} is neither true, 1, yes nor false, 0, no")


def read_password(found: Found) -> str:
    """The first line of a password file. Raises UsageError."""
    try:
        with open(found.value, encoding="utf-8") as file:
            line = file.readline(PASSWORD_BYTES_MAX)
    except OSError as error:
        raise click.UsageError(f"{found.source} {found.value} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{found.source} {found.value} is no UTF-8 text") from None
    return check_text("the password", line.rstrip("\r\n"))
