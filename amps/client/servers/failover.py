"""The steps of reconnecting: which server is tried next, after which wait, and who is told (client.md §9.1, 1 to 5).

This module neither waits nor connects: the front ends do. They ask for an attempt, wait, try it, and report the result.
One thread (or task) at a time makes attempts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from amps.client.errors import AMPSException, ConnectionException
from amps.client.servers.auth import Authenticator
from amps.client.servers.choosers import ConnectionInfo, ServerChooser
from amps.client.servers.delays import DelayStrategy
from amps.client.servers.rivals import Rivals


@dataclass(frozen=True, slots=True)
class Attempt:
    """One server to try."""

    uri: str
    authenticator: Authenticator | None
    wait_s: float
    """Seconds to wait first."""


class Failover:
    """One client's choice of servers, and the state of its attempts."""

    def __init__(
        self,
        client_name: str,
        chooser: ServerChooser,
        delays: DelayStrategy,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.chooser = chooser
        self.delays = delays
        self._clock = clock
        self._rivals = Rivals()
        self._rivals_wait_s = 0.0
        self._info = ConnectionInfo(None, client_name, 0, None, None, None)

    @property
    def info(self) -> ConnectionInfo:
        """The state of the connection or of the attempts."""
        return self._info

    def next_attempt(self) -> Attempt:
        """Return the next attempt. Raises ConnectionException when reconnecting ends.

        Other exceptions are those of the application's chooser or strategy; they end it, too.
        """
        uri = self.chooser.get_current_uri()
        if uri is None:
            raise ConnectionException(self.chooser.get_error() or "the server chooser names no server")
        authenticator = self.chooser.get_current_authenticator()
        wait_s = max(self.delays.get_connect_wait_duration(uri), self._rivals_wait_s)
        self._rivals_wait_s = 0.0
        info = self._info
        self._info = ConnectionInfo(
            uri, info.client_name, info.attempts + 1, info.last_error, info.server_version, None
        )
        return Attempt(uri, authenticator, wait_s)

    def succeeded(self, server_version: str | None) -> None:
        """Note that the client is connected, logged on and recovered."""
        info = self._info
        self._info = ConnectionInfo(
            info.uri, info.client_name, info.attempts, info.last_error, server_version, self._clock()
        )
        self.chooser.report_success(self._info)
        self.delays.reset()

    def failed(self, error: Exception) -> None:
        """Note that an attempt has failed."""
        info = self._info
        self._info = ConnectionInfo(
            info.uri, info.client_name, info.attempts, error, info.server_version, None
        )
        self.chooser.report_failure(error, self._info)

    def lost(self, error: AMPSException) -> None:
        """Note that the connection was lost after a success; the same server is tried again first."""
        info = self._info
        self._rivals_wait_s = self._rivals.wait_s(error)
        self._info = ConnectionInfo(info.uri, info.client_name, 0, error, info.server_version, None)

    def left(self) -> None:
        """Note that no further attempt is made: the application has closed the connection, or no server was found."""
        info = self._info
        self.delays.reset()
        self._info = ConnectionInfo(info.uri, info.client_name, 0, info.last_error, info.server_version, None)
