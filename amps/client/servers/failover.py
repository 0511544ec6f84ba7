"""The steps of reconnecting: which server is tried next, after which wait, and who is told (client.md §9.1, 1 to 5).

This module neither waits nor connects: the front ends do. They ask for an attempt, wait, try it, and report the result.
One thread (or task) at a time makes attempts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from amps.client.errors import AMPSException, ConnectionException
from amps.client.servers.auth import Authenticator
from amps.client.servers.choosers import ConnectionInfo, DefaultServerChooser, ServerChooser
from amps.client.servers.delays import DelayStrategy, ExponentialDelayStrategy, FixedDelayStrategy
from amps.client.servers.rivals import Rivals
from amps.client.servers.undecided import UndecidedWaits

T = TypeVar("T")
OWN_STRATEGIES = (ExponentialDelayStrategy, FixedDelayStrategy)


class Ask(Protocol):
    """How the application's chooser and strategy are called: perhaps with a limit of time."""

    def __call__(self, call: Callable[[], T], /) -> T:
        """Return what the function returns."""


def directly(call: Callable[[], T], /) -> T:
    """Call a function."""
    return call()


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
        self._undecided = UndecidedWaits()
        self._dismissed_wait_s = 0.0
        """At least so long the next attempt waits, because of the reason for which the server ended the connection."""
        self._info = ConnectionInfo(None, client_name, 0, None, None, None)

    @property
    def info(self) -> ConnectionInfo:
        """The state of the connection or of the attempts."""
        return self._info

    def _asking(self, ask: Ask) -> Ask:
        """The choosers and strategies of this package answer at once."""
        own = type(self.chooser) is DefaultServerChooser and type(self.delays) in OWN_STRATEGIES
        return directly if own else ask

    def _choose(self) -> tuple[str, Authenticator | None, float]:
        uri = self.chooser.get_current_uri()
        if uri is None:
            raise ConnectionException(self.chooser.get_error() or "the server chooser names no server")
        if not isinstance(uri, str):
            raise TypeError(
                f"get_current_uri of the server chooser returned {uri!r}: a connection string (str) or None is needed"
            )
        wait_s = self.delays.get_connect_wait_duration(uri)
        if not isinstance(wait_s, int | float):
            raise TypeError(f"get_connect_wait_duration returned {wait_s!r}: a number of seconds is needed")
        return uri, self.chooser.get_current_authenticator(), wait_s

    def next_attempt(self, ask: Ask = directly) -> Attempt:
        """Return the next attempt. Raises ConnectionException when reconnecting ends.

        Other exceptions are those of the application's chooser or strategy, or of `ask`; they end it, too.
        """
        uri, authenticator, wait_s = self._asking(ask)(self._choose)
        wait_s = max(wait_s, self._dismissed_wait_s)
        self._dismissed_wait_s = 0.0
        info = self._info
        self._info = ConnectionInfo(
            uri, info.client_name, info.attempts + 1, info.last_error, info.server_version, None
        )
        return Attempt(uri, authenticator, wait_s)

    def succeeded(self, server_version: str | None, ask: Ask = directly) -> None:
        """Note that the client is connected, logged on and recovered."""
        info = self._info
        self._info = info = ConnectionInfo(
            info.uri, info.client_name, info.attempts, info.last_error, server_version, self._clock()
        )

        def report() -> None:
            self.chooser.report_success(info)
            self.delays.reset()

        self._asking(ask)(report)

    def failed(self, error: Exception, ask: Ask = directly) -> None:
        """Note that an attempt has failed."""
        info = self._info
        self._info = info = ConnectionInfo(
            info.uri, info.client_name, info.attempts, error, info.server_version, None
        )
        self._asking(ask)(lambda: self.chooser.report_failure(error, info))

    def lost(self, error: AMPSException) -> None:
        """Note that the connection was lost after a success; the same server is tried again first."""
        info = self._info
        self._dismissed_wait_s = max(self._rivals.wait_s(error), self._undecided.wait_s(error))
        self._info = ConnectionInfo(info.uri, info.client_name, 0, error, info.server_version, None)

    def left(self) -> None:
        """Note that no further attempt is made: the application has closed the connection, or no server was found."""
        info = self._info
        self._info = ConnectionInfo(info.uri, info.client_name, 0, info.last_error, info.server_version, None)
        self.delays.reset()
