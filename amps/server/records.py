"""Control records: messages between transports and core in the rings, other than the clients' messages.

For queues (`number`: the transport's number of a subscription to them; replies in msgpack, as others):
    KIND_QUEUE_SUBSCRIBE     [number, [queue numbers], max_backlog, filter id | None, shown]; or replaces one.
                             `shown`: [subscription id, topic, filter], for the administration interface
        answer               ["queue_entered", slot, serial, number, effective backlog], before any delivery to it
        for each queue       ["queue_evaluate", 0, 0, cursor, queue number, filter id], if no other subscription of
                             the transport has this filter there; it answers with KIND_QUEUE_MATCHES, again and again
        after the last left  ["queue_evaluated_enough", 0, 0, cursor]
    KIND_QUEUE_UNSUBSCRIBE   [number]; a KIND_DISCONNECT ends all subscriptions of a connection
        answer               ["queue_ended", slot, serial, number]
    KIND_QUEUE_ACKNOWLEDGEMENT (4) is sequenced like a publish (journal/queue_records.pxd); if its token is not 0:
        answer               ["queue_acknowledged", slot, serial, token, matches, deleted, refused]; `refused`: nothing
                             was done, because too many acknowledgements wait for their messages
    KIND_TRANSACTION (19) is an acknowledgement and publishes as one (sequencer/transactions.pxi); only a refusal has an
        answer               ["transaction_refused", slot, serial, first sequence]
    KIND_QUEUE_MATCHES       the messages that match, in binary (journal/queue_records.pxd)
    KIND_QUEUE_DELIVERIES    from the core, in binary (journal/queue_records.pxd)

For queues that span instances, between the core and the replication process:
    KIND_TRANSFER_REQUEST    [queue number, name of the requester, bookmarks, how many of them are wanted]; bookmarks:
                             publisher id and sequence, 8 bytes each. A grant is a record of the log
    KIND_REACHABLE           [[names of the instances that can be reached]]
    KIND_LOG_COMPLETE        [name of an instance, ns, [names] | None], of the session of its flow: all that was in its
                             log so long ago is in the ring before this record. Then the names of the partners; None if
                             one of them is not connected (sequencer/undecided.pxi)
    from the core            ["transfer_wanted", 0, 0, queue number, name of the owner, bookmarks, how many are wanted]

The layout is that of `amps._core.journal.record` (80-byte header, then a msgpack payload), because the rings carry
only such records. Both sides build them here.
"""

import struct

import msgpack

from amps._core.values.value import SERVER_NAMES

# length, checksum, connection slot, serial, 40 bytes of zeros, topic number, expiration, kind, 10 bytes, payload length
_HEADER = struct.Struct("<IIII40xIIH10xI")
_KIND = struct.Struct("<H")
_KIND_OFFSET = 64
HEADER_BYTES = _HEADER.size
NO_EXPIRATION = 0xFFFFFFFF
NAME_BYTES_MAX = 60_000
"""Limit of a client name, and of a user name: both are in one record."""
RESERVED_NAMES = SERVER_NAMES
"""How the names of the server's own sessions begin. No client may log on under such a name."""

KIND_DECLARE_TOPIC = 257
KIND_LOGON = 258
KIND_DISCONNECT = 259
KIND_SPILLED_PUBLISH = 260
KIND_QUEUE_SUBSCRIBE = 261
KIND_QUEUE_UNSUBSCRIBE = 262
KIND_QUEUE_MATCHES = 263
KIND_REPLICATION_FLOW = 264
KIND_DECLARE_NAME = 265
KIND_REPLICATION_VECTOR = 266
KIND_TRANSFER_REQUEST = 267
KIND_REACHABLE = 268
KIND_LOG_COMPLETE = 269
KIND_REPLY = 512
KIND_QUEUE_DELIVERIES = 513


def control_record(
    payload: object, kind: int = KIND_REPLY, slot: int = 0, serial: int = 0, topic: int = 0
) -> bytes:
    """One control record with a msgpack payload."""
    return raw_control_record(msgpack.packb(payload), kind, slot, serial, topic)


def raw_control_record(payload: bytes, kind: int, slot: int = 0, serial: int = 0, topic: int = 0) -> bytes:
    """One control record with a payload of plain bytes."""
    length = HEADER_BYTES + len(payload)
    return _HEADER.pack(length, 0, slot, serial, topic, NO_EXPIRATION, kind, len(payload)) + payload


def record_kind(record: bytes) -> int:
    """Kind of a record."""
    kind: int = _KIND.unpack_from(record, _KIND_OFFSET)[0]
    return kind


def control_payload(record: bytes) -> object:
    """The payload of a control record."""
    return msgpack.unpackb(record[HEADER_BYTES:])
