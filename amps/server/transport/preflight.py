"""HTTP preflight: a client behind an HTTP proxy asks to upgrade, gets 101, then speaks plain frames (protocol.md §17).

Any path and any Upgrade token are taken (D28). A GET without Upgrade is a stray browser or health check: it gets 426
and the connection ends.
"""

from dataclasses import dataclass

REQUEST_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do with bytes that begin with `GET `: bytes to drop, bytes to send, whether to close."""

    consumed: int
    response: bytes = b""
    close: bool = False


def answer(received: bytes) -> Answer:
    """Look at what was received so far; `consumed` 0 means that the request is not whole yet."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) >= REQUEST_BYTES_MAX:
            return Answer(len(received), b"HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n", True)
        return Answer(0)
    upgrade = b""
    for line in received[:end].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"upgrade":
            upgrade = value.strip()
    if not upgrade:
        response = b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        return Answer(end + 4, response, True)
    response = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + upgrade + b"\r\nConnection: Upgrade\r\n\r\n"
    return Answer(end + 4, response)
