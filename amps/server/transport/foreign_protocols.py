"""Recognition of other protocols by the first bytes of a connection (protocol.md §2, §17).

A client that speaks TLS to a plain port, for example, begins with bytes that are no valid length of a frame. The log
then names the protocol that the client speaks, and the setting to change.
"""

HINT_BYTES = 8
"""Number of first bytes that distinguish the protocols."""

# First bytes, and the protocol that they indicate.
_BEGINNINGS = (
    (
        b"\x16\x03",
        "TLS to a port without it: connect with tcp://, or give the Transport a Certificate and a PrivateKey",
    ),
    (b"\x1f\x8b", "a stream compressed with gzip: this server takes no compressed connections"),
    (b"\x28\xb5\x2f\xfd", "a stream compressed with zstd: this server takes no compressed connections"),
    (b"\x04\x22\x4d\x18", "a stream compressed with lz4: this server takes no compressed connections"),
    (b"PRI * HT", "HTTP/2: this port serves no HTTP, see Admin for the port that does"),
    (b"PROXY ", "the PROXY protocol: turn it off in the load balancer"),
    (b"\r\n\r\n\x00\r\nQ", "the PROXY protocol: turn it off in the load balancer"),
    (b"SSH-", "SSH"),
    (b"8=FIX", "a FIX session: this port takes FIX messages in frames of the protocol amps only"),
    (b"<", "XML without the length of a frame before it"),
    (b"{", "a header without the length of a frame before it"),
)
_HTTP_METHODS = (b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")
_HELLO = b"\x01\x00{"  # of an instance: type and flags behind the length, then JSON (docs/replication.md)
_WEBSOCKET_FIRST = (0x81, 0x82)
_MASKED = 0x80


def recognise(first: bytes, frame_bytes_max: int) -> str | None:
    """Describe the protocol of a client with these first bytes, for the log. None: it is unknown."""
    for beginning, what in _BEGINNINGS:
        if first.startswith(beginning):
            return what
    if first.startswith(_HTTP_METHODS):
        return "HTTP: this port serves no HTTP, see Admin for the port that does"
    if len(first) < 5:
        return None
    # A zlib header: deflate with a window of up to 32 KiB, and a checksum over both bytes.
    if first[0] & 0x8F == 0x08 and int.from_bytes(first[:2]) % 31 == 0:
        return (
            "a stream compressed with zlib: this server takes no compressed connections, remove `compression`"
        )
    if first[0] in _WEBSOCKET_FIRST and first[1] & _MASKED:
        return "WebSocket: this port takes the protocol amps, connect with tcp://"
    if first[4:5] == b"{" and int.from_bytes(first[:4], "little") <= frame_bytes_max:
        return "frames whose length has its lowest byte first: it has its highest byte first"
    return None


def recognise_header(first: bytes) -> str | None:
    """As `recognise`, for a frame of plausible length whose header cannot be parsed."""
    if first[4:7] == _HELLO:
        return (
            "the protocol of replication: it is an instance, whose destination must have the address of the Transport "
            "of the type amps-replication as InetAddr"
        )
    return None
