"""HAClients of scripted servers; the fixtures are in conftest.py."""

from collections.abc import Callable
from typing import Any

from amps.client import (
    ConnectionInfo,
    DefaultServerChooser,
    HAClient,
)
from tests.unit.client.peer import WAIT_S, Connection, ScriptedPeer, in_background

SOON_S = 0.2
LONG_S = 60.0
MakeHA = Callable[..., HAClient]


def welcome(peer: ScriptedPeer, seq: int = 0, **fields: Any) -> Connection:
    """Accept the client's connection and its logon."""
    connection = peer.accept()
    connection.logon(seq, **fields)
    return connection


def connected(client: HAClient, peer: ScriptedPeer, seq: int = 0) -> Connection:
    with in_background(client.connect_and_logon, timeout=WAIT_S):
        return welcome(peer, seq)


class Recording(DefaultServerChooser):
    """A chooser that notes its reports."""

    def __init__(self, *uris: str) -> None:
        super().__init__(*uris)
        self.failures: list[tuple[Exception, ConnectionInfo]] = []
        self.successes: list[ConnectionInfo] = []

    def report_failure(self, error: Exception, info: ConnectionInfo) -> None:
        self.failures.append((error, info))
        super().report_failure(error, info)

    def report_success(self, info: ConnectionInfo) -> None:
        self.successes.append(info)
        super().report_success(info)
