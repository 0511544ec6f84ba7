"""The congestion control of a TCP socket, and one that is not Reno."""

import socket
from pathlib import Path

import pytest

_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def another_control() -> bytes:
    """Return one. Skip the test if the system permits none but Reno."""
    others = [name for name in _ALLOWED.read_bytes().split() if name != b"reno"]
    if not others:
        pytest.skip("no other congestion control is allowed")
    return others[0]


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
