# The record: one entry of a journal, of the transient log, and of an ingress ring.
#
# A publish is laid out once, by the transport, in its ring. The core fills in what only the core knows
# (position, transaction id, time, checksum) in place and writes the same bytes to the log. docs/files.md
# documents the layout byte by byte; all numbers are little-endian.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from amps._core.shm.platform cimport align8, crc32c


cdef enum:
    RECORD_HEADER_BYTES = 80
    FILE_HEADER_BYTES = 4096
    TOPIC_PREFIX_BYTES = 24
    RECORD_BYTES_MAX = 0x10000000      # 256 MiB: the largest message with room for its header
    NO_EXPIRATION = 0xFFFFFFFF


# What a record is. Numbers are part of the file format; those from KIND_FIRST_CONTROL on exist in rings only.
cdef enum RecordKind:
    KIND_NONE = 0
    KIND_PUBLISH = 1
    KIND_DELTA_PUBLISH = 2         # holds the merged message
    KIND_SOW_DELETE = 3
    KIND_QUEUE_ACKNOWLEDGEMENT = 4
    KIND_QUEUE_EXPIRY = 5
    KIND_OWNERSHIP_TRANSFER = 6
    KIND_CHECKPOINT = 7
    KIND_NOOP = 8
    KIND_TOPIC = 16                # names a topic id; once per file and topic, before its first use
    KIND_END_OF_FILE = 17          # last record of a full file: the log goes on in the next file
    KIND_FIRST_CONTROL = 256
    KIND_DECLARE_TOPIC = 257       # transport-local topic number, name and message type
    KIND_LOGON = 258
    KIND_DISCONNECT = 259
    KIND_SPILLED_PUBLISH = 260     # the record lies in a spill file named by the payload
    KIND_QUEUE_SUBSCRIBE = 261     # a subscription to queues begins, or changes
    KIND_QUEUE_UNSUBSCRIBE = 262
    KIND_QUEUE_MATCHES = 263       # what filters of queue subscriptions let through: journal/queue_records.pxd
    KIND_QUEUE_DELIVERIES = 513    # from the core: journal/queue_records.pxd


cdef enum RecordFlag:
    FLAG_DERIVED_PUBLISHER = 1     # published without a sequence number: the server numbered it
    FLAG_DELTA = 2                 # arrived as delta_publish
    FLAG_UNRECORDED = 4            # its topic is recorded, its content is not wanted there: transient log


cdef packed struct RecordHeader:
    uint32_t length                # bytes of the record: header, variable parts, payload; not the padding
    uint32_t checksum              # CRC32C of bytes 8 to length
    uint64_t position              # log position of the record's first byte (in a ring: connection slot and serial)
    uint64_t txid                  # local transaction id: the total order of the instance
    uint64_t timestamp_ns          # UNIX time at which this instance processed it
    uint64_t publisher_id          # first part of the bookmark
    uint64_t sequence              # second part of the bookmark
    uint64_t durable_position      # durable watermark when it was written: all before was synced
    uint32_t topic_id              # number given by a topic record of the same file (in a ring: the transport's number)
    uint32_t expiration_s          # lifetime; 0 = never expires; NO_EXPIRATION = none given
    uint16_t kind
    uint16_t flags
    uint16_t correlation_id_length
    uint16_t user_id_length
    uint16_t sow_key_length
    uint16_t origin_length         # bytes of the origin part (original client hash; later replication's)
    uint32_t payload_length
    # then: origin, correlation id, user id, sow key, payload; padded with zeros to a multiple of 8


cdef inline uint32_t record_checksum(const RecordHeader* record) noexcept nogil:
    return crc32c(<const uint8_t*>record + 8, record.length - 8)


cdef inline const uint8_t* record_correlation_id(const RecordHeader* record) noexcept nogil:
    return <const uint8_t*>record + RECORD_HEADER_BYTES + record.origin_length


cdef inline const uint8_t* record_user_id(const RecordHeader* record) noexcept nogil:
    return record_correlation_id(record) + record.correlation_id_length


cdef inline const uint8_t* record_sow_key(const RecordHeader* record) noexcept nogil:
    return record_user_id(record) + record.user_id_length


cdef inline const uint8_t* record_payload(const RecordHeader* record) noexcept nogil:
    return record_sow_key(record) + record.sow_key_length


cdef inline bint record_parts_fit(const RecordHeader* record) noexcept nogil:
    """Whether the lengths of the parts add up to the record's length."""
    return (
        record.length >= RECORD_HEADER_BYTES
        and record.length <= RECORD_BYTES_MAX
        and <uint64_t>record.length == <uint64_t>RECORD_HEADER_BYTES + record.origin_length
        + record.correlation_id_length + record.user_id_length + record.sow_key_length + record.payload_length
    )


cdef inline bint record_plausible(const RecordHeader* record, uint64_t position, uint64_t room) noexcept nogil:
    """Whether what stands at this log position looks like a record. `room`: bytes up to the end of the file."""
    return (
        record.position == position
        and record.kind != KIND_NONE
        and record_parts_fit(record)
        and align8(record.length) <= room
    )


# The first 4096 bytes of a file. `start_position` is set when the file comes into use; until then the file is
# a preallocated spare and `state` says so.
cdef enum FileState:
    FILE_SPARE = 1
    FILE_IN_USE = 2


cdef packed struct FileHeader:
    char magic[8]                  # "AMPSOJNL"
    uint32_t version               # 1
    uint32_t checksum              # CRC32C of bytes 16 to 16 + header_length
    uint32_t header_length         # bytes covered by the checksum
    uint32_t state                 # FileState
    uint64_t file_number
    uint64_t file_size             # bytes, this header included; never changes
    uint64_t start_position        # log position of the byte at offset 0; a record's position is this + its offset
    uint64_t first_txid            # lowest transaction id that may occur in the file
    uint64_t created_ns            # UNIX time
    uint64_t instance_name_hash
    uint16_t instance_name_length
    char instance_name[510]
