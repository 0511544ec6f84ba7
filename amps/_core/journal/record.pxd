# The record: one entry of a journal, of the transient log, and of an ingress ring.
#
# A transport lays out a publish once, in its ring. The core fills in position, transaction id, time and checksum in
# place, and writes the same bytes to the log. docs/files.md documents the layout byte by byte; all numbers are
# little-endian.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from libc.string cimport memcpy

from amps._core.shm.platform cimport align8, crc32c


cdef enum:
    RECORD_HEADER_BYTES = 80
    FILE_HEADER_BYTES = 4096
    TOPIC_PREFIX_BYTES = 24            # bytes of a topic record's payload before its two texts
    NAME_PREFIX_BYTES = 24             # bytes of a name record's payload before its text
    NAME_BYTES_MAX = 65536
    TRANSACTION_BYTES = 96             # a transaction record, before the records of its group
    REFUSED_BYTES = 96                 # a record of a refused transaction that this instance refused
    RECORD_BYTES_MAX = 0x10000000      # 256 MiB: the largest message with room for its header
    NO_EXPIRATION = 0xFFFFFFFF


# The kinds of records. The numbers are part of the file format; those from KIND_FIRST_CONTROL on exist in rings only.
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
    KIND_SOW_EXPIRY = 9            # keys of a SOW topic whose lifetime ended; its payload is that of KIND_SOW_DELETE
    KIND_TOPIC = 16                # names a topic id; once per file and topic, before its first use
    KIND_END_OF_FILE = 17          # last record of a full file: the log continues in the next file
    KIND_NAME = 18                 # gives the text of a name id; once per file and name, before its first use
    KIND_TRANSACTION = 19          # the records of the group behind it are one transaction: all or nothing
    KIND_TRANSACTION_REFUSED = 20  # a transaction without effect; its sequences are used
    KIND_FIRST_CONTROL = 256
    KIND_DECLARE_TOPIC = 257       # transport-local topic number, name and message type
    KIND_LOGON = 258
    KIND_DISCONNECT = 259
    KIND_SPILLED_PUBLISH = 260     # the record is in a spill file, which the payload names
    KIND_QUEUE_SUBSCRIBE = 261     # a subscription to queues begins, or changes
    KIND_QUEUE_UNSUBSCRIBE = 262
    KIND_QUEUE_MATCHES = 263       # messages that match filters of queue subscriptions: journal/queue_records.pxd
    KIND_REPLICATION_FLOW = 264    # a sink flow of replication begins: its records come from one upstream
    KIND_DECLARE_NAME = 265        # the text of a name id that records of the replication process use
    KIND_REPLICATION_VECTOR = 266  # requests the highest sequence of each publisher
    KIND_TRANSFER_REQUEST = 267    # another instance requests queue messages
    KIND_REACHABLE = 268           # the instances that can be reached by replication
    KIND_LOG_COMPLETE = 269        # what this instance has of the log of another one is complete up to a moment
    KIND_QUEUE_DELIVERIES = 513    # from the core: journal/queue_records.pxd


cdef enum RecordFlag:
    FLAG_DERIVED_PUBLISHER = 1     # published without a sequence number: the server numbered it
    FLAG_DELTA = 2                 # arrived as delta_publish
    FLAG_UNRECORDED = 4            # goes to the transient log: the filter of its recorded topic excludes its content


cdef packed struct RecordHeader:
    uint32_t length                # bytes of the record: header, variable parts, payload; not the padding
    uint32_t checksum              # CRC32C of bytes 8 to length
    uint64_t position              # log position of the record's first byte (in a ring: connection slot and serial)
    uint64_t txid                  # local transaction id: the total order of the instance
    uint64_t timestamp_ns          # UNIX time at which this instance processed it
    uint64_t publisher_id          # first part of the bookmark
    uint64_t sequence              # second part of the bookmark
    uint64_t durable_position      # durable watermark when it was written: everything before it was synced
    uint32_t topic_id              # id from a topic record of the same file (in a ring: the transport's number)
    uint32_t expiration_s          # lifetime; 0 = never expires; NO_EXPIRATION = not specified
    uint16_t kind
    uint16_t flags
    uint16_t correlation_id_length
    uint16_t user_id_length
    uint16_t sow_key_length
    uint16_t extension_length      # bytes of the extension area; 0 in most records
    uint32_t payload_length
    # then: extension area, correlation id, user id, sow key, payload; padded with zeros to a multiple of 8


# The payload of a transaction record. Its group follows at once, in the same file. The group is an acknowledgement
# (KIND_QUEUE_ACKNOWLEDGEMENT), then publishes. Recovery keeps all of a group or nothing. In a ring, the length of the
# record covers the group as well.
cdef packed struct TransactionGroup:
    uint64_t bytes                 # of the records of the group, with their padding
    uint32_t count                 # of these records
    uint32_t unused


# The payload of the record of a refused transaction. Its bookmark has the last sequence of the transaction.
cdef packed struct RefusedTransaction:
    uint64_t previous              # file offset of the previous such record in the file; 0 = none
    uint64_t sequence              # the first sequence of the transaction, by which it is known


# The extension area is a sequence of elements without gaps: tag (2 bytes), length of the value (2 bytes), value. Each
# tag occurs at most once. A reader ignores tags that it does not know. A change that a reader must not ignore raises
# the version of the format. The comments give the length of each value.
cdef enum ExtensionTag:
    EXTENSION_CLIENT = 1           # 8: name id of the client, if the publisher id is another (the server numbered it)
    EXTENSION_EXPIRY = 2           # 8: UNIX time in ns at which the message expires; it overrides `expiration_s`
    EXTENSION_SOURCE = 3           # 8 + 8: name id of the instance that sent it here, transaction id there
    EXTENSION_PATH = 4             # 8: name id of the replication path: the instances that it has passed
    # 5 is not used
    EXTENSION_DELIVER_AT = 6       # 8: UNIX time in ns before which no queue delivers the message; 0: it is not delayed
    EXTENSION_STATE = 7            # 24: RecordState, of a record of a SOW topic

cdef enum:
    EXTENSION_ELEMENT_BYTES = 4    # before each value
    EXTENSION_CLIENT_BYTES = 12    # an element with its value
    EXTENSION_DELIVER_AT_BYTES = 12
    EXTENSION_EXPIRY_BYTES = 12
    EXTENSION_STATE_BYTES = 28
    EXTENSION_TAG_LAST = 7


# The key of a record of a SOW topic, and the link to the key's record before it. A place is a log position, or, with
# the highest bit, an offset in the topic's value file (sow/value_file.pxi); 0 = there is none.
cdef packed struct RecordState:
    uint64_t key
    uint64_t previous              # place of the record before; 0: the key had no value
    uint32_t definition            # of the topic's keys: the key is computed again if the configuration has another one
    uint32_t unused


# The payload of KIND_SOW_DELETE and KIND_SOW_EXPIRY in a log: an entry for each key, by ascending keys.
cdef packed struct RemovedKey:
    uint64_t key
    uint64_t previous              # place of the value that was removed


# The classes of names in name records. A name id is a hash of the text. It is the same in all files and instances, so
# that a record can be laid out before its file is known. The payload of a name record: file offset of the previous name
# record (8 bytes, 0 = none), name id (8), class (4), length of the text (4), text.
cdef enum NameClass:
    NAME_CLIENT = 1                # a client name; its id is the publisher id of the client
    NAME_INSTANCE = 2              # an upstream: "amps-server: from <name> <its epoch> <own epoch>"
    NAME_PATH = 3                  # for each instance passed, in order: "name TAB group TAB epoch", line feeds between


cdef inline uint32_t extension_value_bytes(uint32_t tag) noexcept nogil:
    """Length of the value of a known tag."""
    if tag == EXTENSION_STATE:
        return sizeof(RecordState)
    return 16 if tag == EXTENSION_SOURCE else 8


cdef inline const uint8_t* extension_value(const RecordHeader* record, uint32_t tag) noexcept nogil:
    """Address of the value of a known tag, not aligned; NULL: the record has none. Reads only the extension area."""
    cdef const uint8_t* at = <const uint8_t*>record + RECORD_HEADER_BYTES
    cdef uint64_t left = record.extension_length
    cdef uint16_t[2] element
    while left >= EXTENSION_ELEMENT_BYTES:
        memcpy(&element[0], at, EXTENSION_ELEMENT_BYTES)
        at += EXTENSION_ELEMENT_BYTES
        left -= EXTENSION_ELEMENT_BYTES
        if element[1] > left:
            return NULL
        if element[0] == tag:
            return at if element[1] == extension_value_bytes(tag) else NULL
        at += element[1]
        left -= element[1]
    return NULL


cdef inline uint64_t extension_word(const RecordHeader* record, uint32_t tag, uint32_t number) noexcept nogil:
    """Word `number` of the value of a tag; 0: the record has none."""
    cdef uint64_t word = 0
    cdef const uint8_t* value = NULL
    if record.extension_length:
        value = extension_value(record, tag)
    if value != NULL:
        memcpy(&word, value + 8 * number, 8)
    return word


cdef inline RecordState* record_state(const RecordHeader* record) noexcept nogil:
    """The key of a record of a SOW topic, not aligned; NULL: it has none."""
    if record.extension_length == 0:
        return NULL
    return <RecordState*>extension_value(record, EXTENSION_STATE)


cdef inline uint8_t* put_extension(uint8_t* at, uint16_t tag, const uint64_t* words) noexcept nogil:
    """Write one element of a known tag. Returns the address behind it."""
    cdef uint16_t length = <uint16_t>extension_value_bytes(tag)
    memcpy(at, &tag, 2)
    memcpy(at + 2, &length, 2)
    memcpy(at + EXTENSION_ELEMENT_BYTES, words, length)
    return at + EXTENSION_ELEMENT_BYTES + length


cdef inline bint extension_fits(const RecordHeader* record) noexcept nogil:
    """True if the elements fill the extension area, and known tags occur once with values of the right length."""
    cdef const uint8_t* at = <const uint8_t*>record + RECORD_HEADER_BYTES
    cdef uint64_t left = record.extension_length
    cdef uint64_t seen = 0
    cdef uint16_t[2] element
    while left:
        if left < EXTENSION_ELEMENT_BYTES:
            return False
        memcpy(&element[0], at, EXTENSION_ELEMENT_BYTES)
        if element[1] > left - EXTENSION_ELEMENT_BYTES:
            return False
        if 0 < element[0] <= EXTENSION_TAG_LAST:
            if element[1] != extension_value_bytes(element[0]) or seen >> element[0] & 1:
                return False
            seen |= <uint64_t>1 << element[0]
        at += EXTENSION_ELEMENT_BYTES + element[1]
        left -= EXTENSION_ELEMENT_BYTES + element[1]
    return True


cdef inline uint64_t record_client_id(const RecordHeader* record) noexcept nogil:
    """Name id of the client that published the message; 0: it was not published by a client."""
    cdef uint64_t client = extension_word(record, EXTENSION_CLIENT, 0)
    return client if client else record.publisher_id


cdef inline uint64_t record_expiry_ns(const RecordHeader* record) noexcept nogil:
    """UNIX time in ns at which a message expires; the largest number: never; 0: no lifetime was specified."""
    cdef uint64_t expiry_ns = extension_word(record, EXTENSION_EXPIRY, 0)
    if expiry_ns != 0 or record.expiration_s == NO_EXPIRATION:
        return expiry_ns
    if record.expiration_s == 0:
        return <uint64_t>-1
    return record.timestamp_ns + <uint64_t>record.expiration_s * 1_000_000_000


cdef inline const TransactionGroup* transaction_group(const RecordHeader* record) noexcept nogil:
    """The payload of a transaction record in a journal; NULL: the record is malformed."""
    cdef const TransactionGroup* group = <const TransactionGroup*>(<const uint8_t*>record + RECORD_HEADER_BYTES)
    if record.length != TRANSACTION_BYTES or record.payload_length != sizeof(TransactionGroup):
        return NULL
    if group.bytes % 8 or group.bytes < <uint64_t>group.count * RECORD_HEADER_BYTES:
        return NULL
    return group


cdef inline uint32_t record_checksum(const RecordHeader* record) noexcept nogil:
    return crc32c(<const uint8_t*>record + 8, record.length - 8)


cdef inline const uint8_t* record_correlation_id(const RecordHeader* record) noexcept nogil:
    return <const uint8_t*>record + RECORD_HEADER_BYTES + record.extension_length


cdef inline const uint8_t* record_user_id(const RecordHeader* record) noexcept nogil:
    return record_correlation_id(record) + record.correlation_id_length


cdef inline const uint8_t* record_sow_key(const RecordHeader* record) noexcept nogil:
    return record_user_id(record) + record.user_id_length


cdef inline const uint8_t* record_payload(const RecordHeader* record) noexcept nogil:
    return record_sow_key(record) + record.sow_key_length


cdef inline const RefusedTransaction* refused_transaction(const RecordHeader* record) noexcept nogil:
    """The payload of the record of a refused transaction, whose parts fit; NULL: the record is malformed."""
    if record.payload_length != sizeof(RefusedTransaction):
        return NULL
    return <const RefusedTransaction*>record_payload(record)


cdef inline bint record_parts_fit(const RecordHeader* record) noexcept nogil:
    """True if the lengths of the parts add up to the record's length. Only the header is read."""
    return (
        record.length >= RECORD_HEADER_BYTES
        and record.length <= RECORD_BYTES_MAX
        and <uint64_t>record.length == <uint64_t>RECORD_HEADER_BYTES + record.extension_length
        + record.correlation_id_length + record.user_id_length + record.sow_key_length + record.payload_length
    )


cdef inline bint record_sound(const RecordHeader* record) noexcept nogil:
    """True if checksum and extension area of a plausible record are right. The whole record must be in memory."""
    return record.checksum == record_checksum(record) and extension_fits(record)


cdef inline bint record_plausible(const RecordHeader* record, uint64_t position, uint64_t room) noexcept nogil:
    """True if the bytes at a log position look like the header of a record. `room`: bytes to the end of the file."""
    return (
        record.position == position
        and record.kind != KIND_NONE
        and record_parts_fit(record)
        and align8(record.length) <= room
    )


# The state in a file header, which is the first 4096 bytes of a file. `start_position` is set when the file comes into
# use. Until then the file is a preallocated spare journal, with the state FILE_SPARE.
cdef enum FileState:
    FILE_SPARE = 1
    FILE_IN_USE = 2


cdef packed struct FileHeader:
    char magic[8]                  # "AMPSOJNL"
    uint32_t version               # FORMAT_VERSION; files from VERSION_READ_MIN on are read
    uint32_t checksum              # CRC32C of bytes 16 to 16 + header_length
    uint32_t header_length         # bytes covered by the checksum
    uint32_t state                 # FileState
    uint64_t file_number
    uint64_t file_size             # bytes, this header included; never changes
    uint64_t start_position        # log position of the byte at offset 0; position of a record = this + its offset
    uint64_t first_txid            # lowest transaction id that may occur in the file
    uint64_t created_ns            # UNIX time
    uint64_t instance_name_hash
    uint16_t instance_name_length
    char instance_name[510]
