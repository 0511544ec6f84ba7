"""Free TCP ports that stay free until the server binds them.

Two processes that look for free ports at the same time, as workers of pytest-xdist do, may find the same port. So a
port is reserved first, by binding an abstract unix socket named after it: the kernel gives the name to one process
only, and releases it when that process ends. Ports are below the range from which the kernel takes the ports of
outgoing connections.
"""

import contextlib
import random
import socket

FIRST_PORT = 10_000
LAST_PORT = 32_000
_ATTEMPTS = 1000


class ReservedPort:
    """A port that no other process reserves before `release`. Raises OSError if no port is free."""

    def __init__(self) -> None:
        for _ in range(_ATTEMPTS):
            self.number = random.randint(FIRST_PORT, LAST_PORT)
            self._reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._reservation.bind(f"\0amps-embedded-port-{self.number}")
                _check_unused(self.number)
            except OSError:
                self._reservation.close()
            else:
                return
        raise OSError(f"no free TCP port between {FIRST_PORT} and {LAST_PORT}; do servers of old tests still run?")

    def release(self) -> None:
        """Let other processes reserve the port."""
        self._reservation.close()


def _check_unused(port: int) -> None:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        probe: socket.socket | None = None
        with contextlib.suppress(OSError):  # a host without IPv6
            probe = socket.socket(family, socket.SOCK_STREAM)
        if probe is not None:
            with probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    probe.bind((address, port))
                except OSError:
                    if family == socket.AF_INET6 and not has_ipv6():
                        continue
                    raise


def has_ipv6() -> bool:
    """Whether this host has an IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
