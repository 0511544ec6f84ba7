"""TCP connections within one host.

There is no congestion within a host. But congestion controls that pace their sending, such as BBR, make both ends wait
for timers: a queue delivered a tenth less with BBR, the default of many systems, than with Reno, which every Linux
allows any process to use.
"""

import contextlib
import socket


def send_unpaced(sock: socket.socket) -> None:
    """Send without pacing if the peer is on this host. `sock` is connected, and need not be a TCP socket."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not hasattr(socket, "TCP_CONGESTION"):
        return
    with contextlib.suppress(OSError):  # closed meanwhile, or not supported by the system: nothing changes
        if sock.getsockname()[0] == sock.getpeername()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
