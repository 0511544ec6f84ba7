"""Connection strings:
`scheme://[user[:password]@]host:port[/proxy/path]/protocol[/message_type][?name=value&…]`.

A connection string is checked completely here, before any connection is tried. Malformed strings raise
InvalidUriException, unknown or bad parameters InvalidTransportOptionsException, unknown schemes
TransportTypeException. This module opens no socket.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from amps.client.errors import (
    InvalidTransportOptionsException,
    InvalidUriException,
    TransportTypeException,
)

SCHEMES = ("tcp", "tcps", "unix")
PROTOCOLS = ("amps", "json")


@dataclass(frozen=True, slots=True)
class ConnectionUri:
    """A parsed connection string. `password` is None if the string has none, "" for `user:@host`."""

    text: str
    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = None
    proxy_path: str = ""
    protocol: str = "amps"
    message_type: str | None = None
    bind: str | None = None
    tcp_rcvbuf: int | None = None
    tcp_sndbuf: int | None = None
    tcp_nodelay: bool = True
    tcp_linger: int | None = None
    tcp_keepalive: bool = True
    ip_protocol_prefer: str = "ipv4"
    path: str | None = None
    http_preflight: bool = False
    pretty: bool = False

    @property
    def safe_text(self) -> str:
        """The connection string without its password, for logs and messages."""
        if self.user is None:
            return self.text
        at = self.text.index("://") + 3
        return f"{self.text[:at]}{self.user}{self.text[self.text.rindex('@', 0, self._path_at()) :]}"

    def _path_at(self) -> int:
        slash = self.text.find("/", self.text.index("://") + 3)
        return len(self.text) if slash < 0 else slash


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise ValueError("expected true or false")


def _size(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _family(text: str) -> str:
    if text not in ("ipv4", "ipv6"):
        raise ValueError("expected ipv4 or ipv6")
    return text


def _address(text: str) -> str:
    return str(ip_address(text.strip("[]")))


_PARAMETERS: dict[str, Callable[[str], Any]] = {
    "bind": _address,
    "tcp_rcvbuf": _size,
    "tcp_sndbuf": _size,
    "tcp_nodelay": _flag,
    "tcp_linger": _size,
    "tcp_keepalive": _flag,
    "ip_protocol_prefer": _family,
    "path": str,
    "http_preflight": _flag,
    "pretty": _flag,
}


def _parameters(query: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in query.split("&"):
        if not part:
            continue
        name, equals, text = part.partition("=")
        name = unquote(name)
        if name == "compression":
            raise InvalidTransportOptionsException("compression is not supported: remove the parameter")
        convert = _PARAMETERS.get(name)
        if convert is None:
            known = ", ".join(sorted(_PARAMETERS))
            raise InvalidTransportOptionsException(f"unknown connection parameter {name!r}; known: {known}")
        if not equals or not text:
            raise InvalidTransportOptionsException(f"connection parameter {name!r} needs a value")
        try:
            values[name] = convert(unquote(text))
        except ValueError as error:
            raise InvalidTransportOptionsException(f"connection parameter {part!r}: {error}") from None
    return values


def _host_port(text: str, uri: str) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise InvalidUriException(f"{uri!r}: '[' of the IPv6 address is never closed")
    else:
        host, _, rest = text.partition(":")
        rest = ":" + rest if _ else ""
    if not host:
        raise InvalidUriException(f"{uri!r}: no host; write scheme://host:port/amps/type")
    if not rest.startswith(":"):
        raise InvalidUriException(f"{uri!r}: no port; write scheme://host:port/amps/type")
    if not rest[1:].isascii() or not rest[1:].isdigit() or int(rest[1:]) > 65535:
        raise InvalidUriException(f"{uri!r}: {rest[1:]!r} is no port number")
    return host, int(rest[1:])


def without_password(text: str) -> str:
    """Return a connection string without its password, for errors; works for malformed strings, too."""
    scheme, separator, rest = text.partition("://")
    credentials, at, location = rest.rpartition("@")
    name, colon, _ = credentials.partition(":")
    return f"{scheme}{separator}{name}{':***' if colon else ''}{at}{location}"


def parse_uri(text: str) -> ConnectionUri:
    """Parse and check a connection string."""
    if not isinstance(text, str):
        raise TypeError(f"a connection string must be a str, not {type(text).__name__}")
    shown = without_password(text)
    if not text.isprintable():  # line breaks and lone surrogates among others
        raise InvalidUriException(f"{shown!r}: write unprintable characters as %XX")
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme:
        raise InvalidUriException(f"{shown!r} is no connection string; write scheme://host:port/amps/type")
    if scheme in ("ws", "wss"):
        raise TransportTypeException(f"{shown!r}: WebSocket is not available; use tcp or tcps")
    if scheme not in SCHEMES:
        raise TransportTypeException(f"{shown!r}: unknown scheme {scheme!r}; known: {', '.join(SCHEMES)}")
    location, _, query = rest.partition("?")
    authority, slash, path = location.partition("/")
    credentials, at, address = authority.rpartition("@")
    user = password = None
    if at:
        name, colon, secret = credentials.partition(":")
        user = unquote(name)
        password = unquote(secret) if colon else None
    host, port = _host_port(address, shown)
    parameters = _parameters(query)
    segments = [unquote(part) for part in path.split("/")] if slash else []
    if segments and segments[-1] == "":
        segments.pop()
    if not segments or "" in segments:
        raise InvalidUriException(f"{shown!r}: the path must end in the protocol, e.g. /amps/json")
    message_type = None
    if segments[-1] == "amps" or (len(segments) == 1 and segments[0] in PROTOCOLS):
        protocol = segments.pop()
    else:
        message_type = segments.pop()
        if not segments:
            raise InvalidUriException(f"{shown!r}: protocol {message_type!r} is not spoken here; use amps")
        protocol = segments.pop()
        if protocol not in PROTOCOLS:
            raise InvalidUriException(f"{shown!r}: protocol {protocol!r} is not spoken here; use amps")
    if segments and not parameters.get("http_preflight"):
        raise InvalidUriException(f"{shown!r}: a proxy path needs http_preflight=true")
    if scheme == "unix" and not parameters.get("path"):
        raise InvalidTransportOptionsException(
            f"{shown!r}: a unix connection needs the parameter path=<socket file>"
        )
    if scheme != "unix" and "path" in parameters:
        raise InvalidTransportOptionsException(f"{shown!r}: path belongs to unix connections only")
    return ConnectionUri(
        text, scheme, host, port, user, password, "/".join(segments), protocol, message_type, **parameters
    )
