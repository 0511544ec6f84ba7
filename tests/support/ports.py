"""The ports of the tests, by number. amps/embedded/ports.py reserves them: no embedded server gets one of them."""

from amps.embedded.ports import ReservedPort, has_ipv6

__all__ = ["has_ipv6", "release_port", "reserve_port"]

_reserved: dict[int, ReservedPort] = {}


def reserve_port() -> int:
    """A TCP port that no other test, and no embedded server, is given before `release_port`. Raises OSError."""
    port = ReservedPort()
    _reserved[port.number] = port
    return port.number


def release_port(port: int) -> None:
    """Let others have a port of `reserve_port`."""
    reserved = _reserved.pop(port, None)
    if reserved is not None:
        reserved.release()
