"""HTTP preflight: a client behind an HTTP proxy sends an upgrade request, gets status 101, then sends plain frames
(protocol.md §17).

Any path and any Upgrade token are accepted (D28), but no WebSocket handshake: after a 101 that client would send other
frames. A handshake has a `Sec-WebSocket-Key` (RFC 6455, 4.1); a preflight that names the token `websocket` for the sake
of a proxy has none. A refused client receives a text that describes the port, and the connection ends.
"""

from dataclasses import dataclass

REQUEST_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """The reaction to bytes that begin with `GET `: bytes to drop, and bytes to send. `refusal`: the reason for
    closing the connection, for the log; None: the connection stays open.
    """

    consumed: int
    response: bytes = b""
    refusal: str | None = None


def answer(received: bytes, scheme: str) -> Answer:
    """Check the bytes received so far. `consumed` 0 means that the request is not complete yet. `scheme`: the scheme in
    connection strings of this port's clients, such as `tcp`.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) < REQUEST_BYTES_MAX:
            return Answer(0)
        refusal = f"an HTTP request whose headers are over {REQUEST_BYTES_MAX} bytes"
        return _refused(len(received), "431 Request Header Fields Too Large", scheme, refusal)
    headers = {}
    for line in received[:end].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    upgrade = headers.get(b"upgrade")
    if not upgrade:
        return _refused(
            end + 4, "426 Upgrade Required", scheme, "an HTTP request to a port that serves no HTTP"
        )
    if upgrade.lower() == b"websocket" and headers.get(b"sec-websocket-key"):
        return _refused(
            end + 4, "400 Bad Request", scheme, "a WebSocket handshake on a port without WebSocket"
        )
    response = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + upgrade + b"\r\nConnection: Upgrade\r\n\r\n"
    return Answer(end + 4, response)


def _refused(consumed: int, status: str, scheme: str, refusal: str) -> Answer:
    """The answer that refuses a request: a response with an explanation for the client, and the reason for the log."""
    text = (
        f"This port takes frames of the protocol amps, and neither WebSocket nor other HTTP. Connect with a connection "
        f"string that begins with {scheme}://, or use the port that is configured for what you need.\n"
    )
    lines = [
        f"HTTP/1.1 {status}",
        "Connection: close",
        "Content-Type: text/plain",
        f"Content-Length: {len(text)}",
    ]
    if status.startswith("426"):
        lines.append("Upgrade: amps")
    return Answer(consumed, "\r\n".join([*lines, "", text]).encode(), refusal)
