"""Transactions of workers as records, made without the code under test."""

import struct
from collections.abc import Sequence

from tests.support.records import RecordParts, padded, ring_position

KIND_QUEUE_ACKNOWLEDGEMENT = 4
KIND_TRANSACTION = 19
KIND_TRANSACTION_REFUSED = 20
TRANSACTION_BYTES = 96
GROUP = struct.Struct("<QII")
ACKNOWLEDGEMENT = struct.Struct("<IIQQII")
ENTRY = struct.Struct("<QQQII")
NO_SLOT = 0xFFFFFFFF


def acknowledgement_payload(messages: Sequence[tuple[int, int, int]]) -> bytes:
    """The payload of an acknowledgement of messages: (publisher id, sequence, log position) of each."""
    entries = [
        ENTRY.pack(*message, NO_SLOT, 0) for message in sorted(messages, key=lambda message: message[2])
    ]
    return ACKNOWLEDGEMENT.pack(0, len(entries), 0, 0, 0, 0) + b"".join(entries)


def ring_transaction(
    session: tuple[int, int],
    publisher_id: int,
    first: int,
    queue_topic: int,
    messages: Sequence[tuple[int, int, int]],
    publishes: Sequence[tuple[int, bytes]],
) -> bytes:
    """A transaction as it is in a ring. session: slot and serial. publishes: topic number and payload of each."""
    position = ring_position(*session)
    parts = [
        RecordParts(
            acknowledgement_payload(messages),
            KIND_QUEUE_ACKNOWLEDGEMENT,
            queue_topic,
            publisher_id,
            first,
            position=position,
        )
    ]
    parts += [
        RecordParts(payload, 1, topic, publisher_id, first + number, position=position)
        for number, (topic, payload) in enumerate(publishes, 1)
    ]
    group = b"".join(padded(one.to_bytes()) for one in parts)
    head = RecordParts(
        GROUP.pack(len(group), len(parts), 0),
        KIND_TRANSACTION,
        queue_topic,
        publisher_id,
        first,
        position=position,
    ).to_bytes()
    assert len(head) == TRANSACTION_BYTES
    return struct.pack("<I", len(head) + len(group)) + head[4:] + group
