"""Server choosers: they decide which server a client with failover tries next (client.md §9.3, §19.8)."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from amps.client.servers.auth import Authenticator
from amps.client.uri import parse_uri, without_password


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionInfo:
    """The state of a client's connection, or of its attempts to make one. `repr()` hides the password in `uri`."""

    uri: str | None
    """The connection string in use or tried last; None before the first attempt."""
    client_name: str
    """The name of the client."""
    attempts: int
    """The number of attempts since the client was last connected."""
    last_error: Exception | None
    """Why the last attempt failed, or the last connection was lost; None if neither has happened."""
    server_version: str | None
    """The version from the last logon; None before it."""
    since: float | None
    """When the connection was established and recovered, in seconds since the epoch; None without one."""

    def __repr__(self) -> str:
        uri = None if self.uri is None else without_password(self.uri)
        return (
            f"ConnectionInfo(uri={uri!r}, client_name={self.client_name!r}, attempts={self.attempts},"
            f" last_error={self.last_error!r}, server_version={self.server_version!r}, since={self.since})"
        )


class ServerChooser(Protocol):
    """Decides which server is tried. Called by the one thread that reconnects; an exception ends reconnecting."""

    def get_current_uri(self) -> str | None:
        """Return the connection string of the next attempt; None ends reconnecting."""

    def get_current_authenticator(self) -> Authenticator | None:
        """Return the authenticator for that server; None = the client's."""

    def report_failure(self, error: Exception, info: ConnectionInfo) -> None:
        """Note that an attempt has failed, or a connection was lost."""

    def report_success(self, info: ConnectionInfo) -> None:
        """Note that the client is connected, logged on and recovered."""

    def get_error(self) -> str:
        """Return the text of the exception that is raised when there is no connection string."""


class DefaultServerChooser:
    """Tries servers in the order in which they were added; after a failure the next one, after the last the first.

    A connection string that cannot work is refused when it is added (InvalidUriException and others, see
    `amps.client.Client.connect`). Thread-safe.
    """

    def __init__(self, *uris: str) -> None:
        self._lock = threading.Lock()
        self._uris: list[str] = []
        self._at = 0
        self._error = "the server chooser has no connection string"
        self.add_all(uris)

    def add(self, uri: str) -> Self:
        """Add a server at the end of the list."""
        parse_uri(uri)
        with self._lock:
            self._uris.append(uri)
        return self

    def add_all(self, uris: Iterable[str]) -> Self:
        """Add servers at the end of the list."""
        if isinstance(uris, str):
            raise TypeError("add_all takes several connection strings; add takes one")
        for uri in uris:
            self.add(uri)
        return self

    def remove(self, uri: str) -> None:
        """Remove a server; a connection to it is kept. Raises ValueError if it is not in the list."""
        with self._lock:
            if uri not in self._uris:
                raise ValueError(f"{without_password(uri)} is not in the list of servers")
            at = self._uris.index(uri)
            del self._uris[at]
            if at < self._at:
                self._at -= 1
            if self._at >= len(self._uris):
                self._at = 0

    def next(self) -> None:
        """Go on to the next server."""
        with self._lock:
            self._at = (self._at + 1) % len(self._uris) if self._uris else 0

    def get_current_uri(self) -> str | None:
        """Return the connection string of the current server; None if the list is empty."""
        with self._lock:
            return self._uris[self._at] if self._uris else None

    def get_current_authenticator(self) -> Authenticator | None:
        """Return None: the client's authenticator is used."""
        return None

    def report_failure(self, error: Exception, info: ConnectionInfo) -> None:
        """Go on to the next server."""
        self._error = str(error)
        self.next()

    def report_success(self, info: ConnectionInfo) -> None:
        """Stay with the current server."""

    def get_error(self) -> str:
        """Return the text of the last error."""
        return self._error
