# A record from another instance, as a ring has it: with the extension area that it gets here.
#
# Of the original, the elements client, expiry and "deliver at" remain. A lifetime becomes an expiry, because it counts
# from the time of the original. Source and path are those of the way here (docs/replication.md).
#
# A record of a SOW topic keeps its key, if the source defines keys as this instance does. Otherwise the key is made
# here, so that the core need not read the message (sow.md §3, §4). The places of another instance mean nothing here:
# they are removed from keys and deletions, and the core fills its own in.

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from amps._core.journal.queue_records cimport QueueAcknowledgementHeader, QueueEntry
from amps._core.journal.record cimport (
    EXTENSION_CLIENT,
    EXTENSION_DELIVER_AT,
    EXTENSION_EXPIRY,
    EXTENSION_SOURCE,
    EXTENSION_STATE,
    EXTENSION_STATE_BYTES,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_EXPIRY,
    KIND_SOW_DELETE,
    NO_EXPIRATION,
    REFUSED_BYTES,
    RecordState,
    RemovedKey,
    extension_value,
    put_extension,
    record_sow_key,
    record_state,
)
from amps._core.sow.slots cimport REMOVED_KEYS_MAX
from amps._core.sow.table cimport is_value
from amps._core.wire.topics cimport SowRules

cdef enum:
    EXTENSION_BYTES_MAX = 3 * 12 + 20 + 12 + EXTENSION_STATE_BYTES  # client, expiry, deliver at; source; path; key


cdef bint state_here(const RecordHeader* record, SowRules rules, RecordState* state) except -1:
    """Set the key that a record has here, without a place. rules: None = its topic is no SOW topic here. False: it has
    none.
    """
    cdef const RecordState* given = record_state(record)
    if not is_value(record) or given == NULL and rules is None:
        return False
    if given != NULL:
        memcpy(state, given, sizeof(RecordState))
    state.previous = 0
    state.unused = 0
    if given != NULL and (rules is None or state.definition == rules.keys.definition):
        return True
    state.definition = rules.keys.definition
    if rules.generated_keys:
        state.key = 0  # the core makes it: it knows the chains
        return True
    if not rules.given_keys:
        state.key = rules.keys.key_of(record_payload(record), record.payload_length)
    elif record.sow_key_length == 0:
        state.key = 0
    else:
        state.key = rules.keys.key_of_text(record_sow_key(record), record.sow_key_length)
    return state.key != 0


cdef uint8_t* lay_out_record(
    const RecordHeader* record, uint8_t* room, uint64_t position, uint32_t topic, uint64_t upstream_id, uint64_t path,
    const RecordState* state,
) noexcept nogil:
    """Write one record with its new extension area. state: NULL = it has no key. Returns the address behind its
    padding.
    """
    cdef RecordHeader* made = <RecordHeader*>room
    cdef uint8_t* at = room + RECORD_HEADER_BYTES
    cdef uint64_t[2] words
    cdef uint64_t rest = record.length - RECORD_HEADER_BYTES - record.extension_length
    memcpy(room, record, RECORD_HEADER_BYTES)
    at = keep_extension(record, EXTENSION_CLIENT, at)
    words[0] = expiry_of(record)
    if words[0]:
        at = put_extension(at, EXTENSION_EXPIRY, &words[0])
    words[0] = upstream_id
    words[1] = record.txid
    at = put_extension(at, EXTENSION_SOURCE, &words[0])
    words[0] = path
    at = put_extension(at, EXTENSION_PATH, &words[0])
    at = keep_extension(record, EXTENSION_DELIVER_AT, at)
    if state != NULL:
        at = put_extension(at, EXTENSION_STATE, <const uint64_t*>state)
    made.extension_length = <uint16_t>(at - room - RECORD_HEADER_BYTES)
    made.length = <uint32_t>(RECORD_HEADER_BYTES + made.extension_length + rest)
    made.position = position
    made.topic_id = topic
    memcpy(at, <const uint8_t*>record + RECORD_HEADER_BYTES + record.extension_length, rest)
    at += rest
    if record.kind == KIND_SOW_DELETE:
        forget_places(<RemovedKey*>(at - record.payload_length), record.payload_length)
    rest = align8(made.length) - made.length
    memset(at, 0, rest)
    return at + rest


cdef inline uint64_t expiry_of(const RecordHeader* record) noexcept nogil:
    """The UNIX time in ns at which a record expires at every instance; 0: none was specified, or it never does."""
    cdef uint64_t expiry_ns = extension_word(record, EXTENSION_EXPIRY, 0) if record.extension_length else 0
    if expiry_ns == 0 and record.expiration_s != NO_EXPIRATION and record.expiration_s != 0:
        expiry_ns = record.timestamp_ns + <uint64_t>record.expiration_s * 1_000_000_000
    return expiry_ns


cdef void forget_places(RemovedKey* keys, uint32_t length) noexcept nogil:
    """Remove the places of another instance from the payload of a deletion."""
    cdef uint32_t at
    for at in range(length // <uint32_t>sizeof(RemovedKey)):
        keys[at].previous = 0


cdef inline uint64_t extension_bytes_max(const RecordHeader* record, bint keyed) noexcept nogil:
    """The most bytes that the extension area of a record can have here. keyed: it may get a key."""
    cdef uint64_t length = 20 + 12
    if keyed or record.extension_length and record_state(record) != NULL:
        length += EXTENSION_STATE_BYTES
    if record.extension_length:
        if extension_value(record, EXTENSION_CLIENT) != NULL:
            length += 12
        if extension_value(record, EXTENSION_DELIVER_AT) != NULL:
            length += 12
    return length + (12 if expiry_of(record) else 0)


cdef inline uint8_t* keep_extension(const RecordHeader* record, uint32_t tag, uint8_t* at) noexcept nogil:
    """Write the element of a tag as a record has it, if it has one. Returns the address behind it."""
    cdef const uint8_t* value = extension_value(record, tag) if record.extension_length else NULL
    cdef uint64_t word
    if value == NULL:
        return at
    memcpy(&word, value, 8)
    return put_extension(at, <uint16_t>tag, &word)


cdef int check_member(const RecordHeader* record, const RecordHeader* previous) except -1:
    """Check a record of a transaction: an acknowledgement, then publishes, of one publisher. Raises StreamError."""
    if record.kind != (<int>KIND_QUEUE_ACKNOWLEDGEMENT if previous == NULL else <int>KIND_PUBLISH) or (
        previous != NULL
        and (record.publisher_id != previous.publisher_id or record.sequence != previous.sequence + 1)
    ):
        raise StreamError(f"the record with the transaction id {record.txid} cannot be in a transaction")
    return 0


cdef bint payload_fits(const RecordHeader* record) noexcept nogil:
    """Whether the payload has the lengths that the core relies on."""
    cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
    if record.kind == KIND_QUEUE_ACKNOWLEDGEMENT or record.kind == KIND_QUEUE_EXPIRY:
        return record.payload_length >= sizeof(QueueAcknowledgementHeader) and record.payload_length == (
            sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
        )
    if record.kind == KIND_SOW_DELETE:
        return keys_fit(<const RemovedKey*>record_payload(record), record.payload_length)
    if record.kind == KIND_TRANSACTION_REFUSED:
        return record.payload_length == REFUSED_BYTES - RECORD_HEADER_BYTES
    return True


cdef bint keys_fit(const RemovedKey* keys, uint32_t length) noexcept nogil:
    """Whether the payload of a deletion is a list of keys in ascending order, of at most REMOVED_KEYS_MAX."""
    cdef uint32_t count = length // <uint32_t>sizeof(RemovedKey)
    cdef uint32_t at
    if length % <uint32_t>sizeof(RemovedKey) or count > REMOVED_KEYS_MAX:
        return False
    for at in range(1, count):
        if keys[at].key <= keys[at - 1].key:
            return False
    return True
