"""Opens the raw connections of one test and closes them when it ends."""

import itertools
import ssl
from typing import Self

from tests.support.peer import RawClient, Value
from tests.support.server import ServerProcess

SOON = "ack_conflation=5ms"
"""Logon options by default: with them a client that waits for a persisted ack need not wait for the default interval,
a second. Tests of acks that are not due yet log on with an interval of their own, or with "" for the default.
"""


class Peers:
    """A factory of `RawClient`s whose client names are unique to one test."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._opened: list[RawClient] = []

    def open(
        self, server: ServerProcess, transport: str | None = None, *, tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1", receive_buffer_bytes: int | None = None,
    ) -> RawClient:  # fmt: skip
        """Connect without logging on."""
        path = server.transport(transport).socket_path
        client = (
            RawClient.unix(path)
            if path is not None
            else RawClient.tcp(
                server.port(transport), host, tls=tls, receive_buffer_bytes=receive_buffer_bytes
            )
        )
        self._opened.append(client)
        return client

    def logged_on(
        self, server: ServerProcess, transport: str | None = None, *, name: str | None = None,
        tls: ssl.SSLContext | None = None, host: str = "127.0.0.1",
        receive_buffer_bytes: int | None = None, **logon_fields: Value,
    ) -> RawClient:  # fmt: skip
        """Connect and log on, under a unique name and with the options `SOON` unless others are given."""
        client = self.open(server, transport, tls=tls, host=host, receive_buffer_bytes=receive_buffer_bytes)
        client.logon(name or self.new_name(), **{"o": SOON, **logon_fields})
        return client

    def new_name(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._opened:
            client.close()
