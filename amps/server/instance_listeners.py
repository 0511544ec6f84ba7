"""The listening sockets of an instance: the supervisor opens them, other processes accept from them.

They are opened before the first fork, so that an address in use is an error at start. They stay open in the
supervisor while a process that accepted from them is replaced. A process closes those that it does not serve.
"""

import contextlib
import dataclasses
import errno
import socket
from pathlib import Path

from amps.config import AdminConfig, ServerConfig
from amps.server.eventlog import EventLog
from amps.server.shared.listeners import open_listeners


class Listeners:
    """All listening sockets: those of the transports, by name, of replication, and of the administration interface."""

    def __init__(self) -> None:
        self.transports: dict[str, list[socket.socket]] = {}
        self.replication: list[socket.socket] = []
        self.admin: list[socket.socket] = []
        self._socket_files: dict[Path, int] = {}

    def open(self, config: ServerConfig, log: EventLog) -> None:
        """Open all listening sockets. Raises ListenFailure."""
        for transport in config.transports:
            self.transports[transport.name] = open_listeners(transport)
            for listening in self.transports[transport.name]:
                log.log("11-0001", transport=transport.name, address=shown_address(listening))
                if transport.file_name is not None:
                    self._socket_files[transport.file_name] = transport.file_name.lstat().st_ino
        if config.replication_transport is not None:
            self.replication = open_listeners(config.replication_transport)
            for listening in self.replication:
                name = config.replication_transport.name
                log.log("11-0001", transport=name, address=shown_address(listening))
        if config.admin is not None:
            self.admin = open_admin_listeners(config.admin)
            for listening in self.admin:
                log.log("19-0001", address=shown_address(listening))

    def all(self) -> list[socket.socket]:
        """Every listening socket."""
        everything = (*self.transports.values(), self.replication, self.admin)
        return [listening for sockets in everything for listening in sockets]

    def close_transports(self) -> None:
        """Close the sockets of the transports."""
        for sockets in self.transports.values():
            for listening in sockets:
                listening.close()

    def close_replication(self) -> None:
        """Close the sockets for other instances."""
        for listening in self.replication:
            listening.close()

    def close_admin(self) -> None:
        """Close the sockets of the administration interface."""
        for listening in self.admin:
            listening.close()

    def remove_socket_files(self) -> None:
        """Remove the socket files of this instance, but not a file that another server has put in their place."""
        for path, inode in self._socket_files.items():
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == inode:
                    path.unlink()


def open_admin_listeners(config: AdminConfig) -> list[socket.socket]:
    """The sockets of the administration interface; for a port alone, on loopback addresses. Raises ListenFailure."""
    transport = config.transport
    if transport.host is not None:
        return open_listeners(transport)
    opened = open_listeners(dataclasses.replace(transport, host="127.0.0.1"))
    if transport.port and socket.has_ipv6:
        try:
            opened += open_listeners(dataclasses.replace(transport, host="::1"))
        except OSError as error:
            # The host has no such address, so only 127.0.0.1 is used.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return opened


def shown_address(listening: socket.socket) -> str:
    """The address of a socket, in the usual notation."""
    name = listening.getsockname()
    if not isinstance(name, tuple):
        return str(name)
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
