"""Free TCP ports that stay free until the server under test binds them.

Finding a free port and binding it later is a race between test processes. Here a port is *reserved* first, by
binding an abstract unix socket named after it: the kernel gives the name to one process only and releases it
when that process ends. Ports come from below the ephemeral range, so that no outgoing connection takes one.
"""

import random
import socket

FIRST_PORT = 10_000
LAST_PORT = 32_000

_reservations: dict[int, socket.socket] = {}


def reserve_port() -> int:
    """A TCP port that no other test process is given before `release_port`."""
    for _ in range(1000):
        port = random.randint(FIRST_PORT, LAST_PORT)
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0message-server-test-port-{port}")
            for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                _check_unused(family, address, port)
        except OSError:
            reservation.close()
            continue
        _reservations[port] = reservation
        return port
    raise RuntimeError("no free TCP port found between 10000 and 32000; are servers of old runs still alive?")


def release_port(port: int) -> None:
    reservation = _reservations.pop(port, None)
    if reservation is not None:
        reservation.close()


def has_ipv6() -> bool:
    try:
        _check_unused(socket.AF_INET6, "::1", 0)
    except OSError:
        return False
    return True


def _check_unused(family: int, address: str, port: int) -> None:
    if family == socket.AF_INET6 and not socket.has_ipv6:
        return
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return  # a host without IPv6
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind((address, port))
