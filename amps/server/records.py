"""Control records: what transports and core tell each other through the rings besides messages.

The layout is that of `amps._core.record` (80-byte header, then a msgpack payload), because a ring carries nothing
else. Both sides build them here.
"""

import struct

import msgpack

# length, checksum, connection slot, serial, 40 bytes of zeros, topic number, expiration, kind, 10 bytes, payload length
_HEADER = struct.Struct("<IIII40xIIH10xI")
HEADER_BYTES = _HEADER.size
NO_EXPIRATION = 0xFFFFFFFF

KIND_DECLARE_TOPIC = 257
KIND_LOGON = 258
KIND_DISCONNECT = 259
KIND_SPILLED_PUBLISH = 260
KIND_REPLY = 512


def control_record(
    payload: object, kind: int = KIND_REPLY, slot: int = 0, serial: int = 0, topic: int = 0
) -> bytes:
    """One control record with a msgpack payload."""
    return raw_control_record(msgpack.packb(payload), kind, slot, serial, topic)


def raw_control_record(payload: bytes, kind: int, slot: int = 0, serial: int = 0, topic: int = 0) -> bytes:
    """One control record with a payload of plain bytes."""
    length = HEADER_BYTES + len(payload)
    return _HEADER.pack(length, 0, slot, serial, topic, NO_EXPIRATION, kind, len(payload)) + payload


def control_payload(record: bytes) -> object:
    """What a control record says."""
    return msgpack.unpackb(record[HEADER_BYTES:])
