"""TCP connections within one host.

Nothing is congested there. What paces its sending all the same, as BBR does, makes both ends wait for timers: a queue
passed on a tenth less with BBR, the default of many systems, than with Reno, which every Linux lets anybody use.
"""

import contextlib
import socket


def send_unpaced(sock: socket.socket) -> None:
    """Send as fast as the other end takes it if that is on this host. `sock` is connected, and may be no TCP socket."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not hasattr(socket, "TCP_CONGESTION"):
        return
    with contextlib.suppress(OSError):  # closed meanwhile, or a system without it: it stays as it is
        if sock.getsockname()[0] == sock.getpeername()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
