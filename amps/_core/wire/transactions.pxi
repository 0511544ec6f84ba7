# Transactions of workers in a transport: the command `transaction` becomes one record of the ring.
#
# The body of the command is a list of publishes (queue_guarantees.md §4): for each a length and a frame. They are laid
# out behind the transaction record and the acknowledgement, as they will stand in the journal (journal/record.pxd,
# `TransactionGroup`). The core fills in the rest, or refuses the whole (sequencer/transactions.pxi).
#
# The plain case needs no Python: all messages are leased to the connection, all topics are known, permitted and
# recorded, and the record fits into the ring. Any other command goes to Python (amps/server/transport/transacting.py),
# which lays it out with the same code, and names what is wrong.
#
# Invariants
# - Nothing is committed to the ring before the whole command is laid out: a command has its effect whole, or none.
# - The entries of the acknowledgement have distinct bookmarks and are in the order of the log.
# - `transactions` has each command that is in the ring, in ring order, until it is answered.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memset

from amps._core.journal.queue_records cimport QUEUE_ACKNOWLEDGE, QueueAcknowledgementHeader, QueueEntry
from amps._core.journal.record cimport (
    KIND_TRANSACTION,
    RECORD_BYTES_MAX,
    TRANSACTION_BYTES,
    TransactionGroup,
)

cdef enum:
    PUBLISHES_MAX = 4096
    ENTRIES_OFFSET = TRANSACTION_BYTES + RECORD_HEADER_BYTES + sizeof(QueueAcknowledgementHeader)

TRANSACTION_PUBLISHES_MAX = PUBLISHES_MAX

# Results of laying out.
LAID_OUT = 0
LAYING_MALFORMED = 1       # the body, or a publish in it, is no list of publishes
LAYING_TOO_MANY = 2        # more than PUBLISHES_MAX publishes
LAYING_TOO_LONG = 3
LAYING_FIELD = 4           # a publish has a key that is not allowed, or a value that cannot be read
LAYING_NEW_TOPIC = 5       # `topic_name` of that publish must be declared first
LAYING_PERMISSION = 6      # whether the client may publish to `topic_entry` must be set first
LAYING_DENIED = 7          # it may not, or no client may
LAYING_UNRECORDED = 8      # the transaction log does not record it
LAYING_SEQUENCE = 9        # the sequence of that publish would be above 64 bits
LAYING_STATE = 10          # its SOW topic does not take it: `refusal` has the reason
LAYING_ROOM = 11           # the memory does not suffice, because preprocessing has made messages longer

cdef uint64_t COMMAND_FIELDS = (
    NEEDED_FIELDS | (<uint64_t>1 << <int>FIELD_CMD_ID) | (<uint64_t>1 << <int>FIELD_SEQ)
    | (<uint64_t>1 << <int>FIELD_ACK_TYPE)
)
cdef uint64_t PUBLISH_FIELDS = (
    (<uint64_t>1 << <int>FIELD_CMD) | (<uint64_t>1 << <int>FIELD_TOPIC) | (<uint64_t>1 << <int>FIELD_EXPIRATION)
    | (<uint64_t>1 << <int>FIELD_SOW_KEY) | (<uint64_t>1 << <int>FIELD_CORRELATION_ID) | DELAY_FIELDS
)


cdef inline uint32_t length_at(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef int by_bookmark(const void* a, const void* b) noexcept nogil:
    cdef const QueueEntry* left = <const QueueEntry*>a
    cdef const QueueEntry* right = <const QueueEntry*>b
    if left.publisher_id != right.publisher_id:
        return -1 if left.publisher_id < right.publisher_id else 1
    if left.sequence != right.sequence:
        return -1 if left.sequence < right.sequence else 1
    return 0


cdef int by_position(const void* a, const void* b) noexcept nogil:
    cdef const QueueEntry* left = <const QueueEntry*>a
    cdef const QueueEntry* right = <const QueueEntry*>b
    if left.position != right.position:
        return -1 if left.position < right.position else 1
    return 0


cdef void drop_repeated(AckList acks) noexcept:
    """Keep one entry of each bookmark."""
    cdef uint32_t at
    cdef uint32_t kept = 1
    if acks.count < 2:
        return
    qsort(acks.entries, acks.count, sizeof(QueueEntry), by_bookmark)
    for at in range(1, acks.count):
        if by_bookmark(&acks.entries[at], &acks.entries[kept - 1]) != 0:
            acks.entries[kept] = acks.entries[at]
            kept += 1
    acks.count = kept
    acks.unknown = 0
    for at in range(kept):
        if acks.entries[at].position == 0:
            acks.unknown += 1


cdef uint64_t room_for_group(Ingress connection, uint32_t entries) noexcept:
    """The most bytes that the current command can need in the ring, unless preprocessing makes its messages longer.

    0: its body is no list, or too long.
    """
    cdef const uint8_t* at = connection.frame + connection.header_length
    cdef uint64_t left = connection.frame_length - connection.header_length
    cdef uint64_t per_publish = (
        RECORD_HEADER_BYTES + EXTENSION_DELIVER_AT_BYTES + EXTENSION_STATE_BYTES + EXTENSION_EXPIRY_BYTES
        + <uint64_t>len(connection.user_id) + 8
    )
    cdef uint64_t total = ENTRIES_OFFSET + entries * sizeof(QueueEntry)
    cdef uint64_t length
    while left:
        if left < 4:
            return 0
        length = length_at(at)
        if length > left - 4:
            return 0
        total += per_publish + length
        at += 4 + length
        left -= 4 + length
    return total


cdef int lay_out_group(
    Ingress connection, uint8_t* room, uint64_t room_bytes, AckList acks, TopicEntry queue, uint64_t first,
    uint64_t* length, uint32_t* publishes
) except -1:
    """Lay out the current command in memory of at least `room_for_group` bytes, with the entries of `acks` as they are.

    Returns a result of laying out. Without success, publishes[0] is the number of the publish concerned, from 0. The
    view of the current header is lost; all else about the current frame stays.
    """
    cdef const uint8_t* frame = connection.frame
    cdef uint32_t frame_length = connection.frame_length
    cdef uint32_t header_length = connection.header_length
    cdef uint64_t given_sequence = connection.given_sequence
    cdef Acknowledging about
    cdef int result
    about.slot = connection.slot
    about.serial = connection.serial
    about.topic = queue.number
    about.action = QUEUE_ACKNOWLEDGE
    about.extension_ns = 0
    about.searched_until = 0
    about.token = 0
    about.numbered = False
    about.publisher_id = connection.publisher_id
    about.derived_id = connection.derived_id
    about.sequence = first
    lay_out(<RecordHeader*>(room + TRANSACTION_BYTES), &about, acks.entries, acks.count)
    try:
        result = lay_out_publishes(
            connection, room, room_bytes, frame + header_length, frame_length - header_length,
            TRANSACTION_BYTES + align8(acknowledgement_length(&about, acks.count)), first, length, publishes,
        )
    finally:
        connection.frame = frame
        connection.frame_length = frame_length
        connection.header_length = header_length
        connection.given_sequence = given_sequence
    if result == LAID_OUT:
        fill_transaction(connection, <RecordHeader*>room, queue.number, first, length[0], publishes[0] + 1)
    return result


def transaction_publishes(bytearray record not None):
    """The number of publishes in a transaction's record."""
    return (<const TransactionGroup*>(<const uint8_t*><const char*>record + RECORD_HEADER_BYTES)).count - 1


cdef void fill_transaction(
    Ingress connection, RecordHeader* record, uint32_t topic, uint64_t first, uint64_t length, uint32_t count
) noexcept:
    """Write the transaction record at the beginning of its group."""
    cdef TransactionGroup* group = <TransactionGroup*>(<uint8_t*>record + RECORD_HEADER_BYTES)
    memset(record, 0, TRANSACTION_BYTES)
    record.length = <uint32_t>length
    record.position = connection.slot | (<uint64_t>connection.serial << 32)
    record.topic_id = topic
    record.kind = KIND_TRANSACTION
    record.expiration_s = NO_EXPIRATION
    record.publisher_id = connection.publisher_id
    record.sequence = first
    group.bytes = length - TRANSACTION_BYTES
    group.count = count


cdef int lay_out_publishes(
    Ingress connection, uint8_t* room, uint64_t room_bytes, const uint8_t* body, uint64_t left, uint64_t at,
    uint64_t first, uint64_t* length, uint32_t* publishes
) except -1:
    """Lay out the publishes of a body from the offset `at` on. Each becomes the current frame of the connection."""
    cdef TopicEntry entry
    cdef int32_t header_length
    cdef uint64_t record_length
    cdef uint32_t permission
    cdef uint64_t number
    publishes[0] = 0
    while left:
        if publishes[0] == PUBLISHES_MAX:
            return LAYING_TOO_MANY
        if first > U64_MAX - publishes[0] - 1:
            return LAYING_SEQUENCE
        if left < 4 or length_at(body) > left - 4:
            return LAYING_MALFORMED
        connection.frame = body + 4
        connection.frame_length = length_at(body)
        left -= 4 + connection.frame_length
        body += 4 + connection.frame_length
        header_length = scan_header(<const char*>connection.frame, connection.frame_length, &connection.view)
        if header_length < 0:
            return LAYING_MALFORMED
        connection.header_length = <uint32_t>header_length
        if not is_publish_in_transaction(&connection.view):
            return LAYING_FIELD
        if connection.view.present & (<uint64_t>1 << <int>FIELD_EXPIRATION):
            if field_u64(&connection.view, FIELD_EXPIRATION, &number) < 0 or number >= NO_EXPIRATION:
                return LAYING_FIELD
        if connection.view.present & DELAY_FIELDS and not connection.has_valid_delay():
            return LAYING_FIELD
        entry = connection.find_entry()
        connection.topic_entry = entry
        if entry is None:
            return LAYING_NEW_TOPIC
        if entry.refusal is not None:
            return LAYING_DENIED
        if connection.checked:
            permission = (
                connection.permissions[entry.number] & 3 if entry.number < connection.permission_count else 0
            )
            if permission == 0:
                return LAYING_PERMISSION
            if permission == 2:
                return LAYING_DENIED
        if entry.target is not None:
            entry = entry.target
        if entry.discarded or not entry.logged:
            return LAYING_UNRECORDED
        if not connection.take_message(entry.sow):
            return LAYING_STATE
        if entry.sow is not None and (entry.sow.generated_keys or entry.sow.is_enriched):
            connection.refusal = "computed fields"
            return LAYING_STATE
        record_length = connection.record_length(first + publishes[0] + 1)
        if at + record_length > RECORD_BYTES_MAX:
            return LAYING_TOO_LONG
        if at + align8(record_length) > room_bytes:
            return LAYING_ROOM
        connection.fill_record(
            <RecordHeader*>(room + at), <uint32_t>record_length, entry, first + publishes[0] + 1
        )
        if (<RecordHeader*>(room + at)).flags & FLAG_UNRECORDED:
            return LAYING_UNRECORDED
        at += align8(record_length)
        publishes[0] += 1
    length[0] = at
    return LAID_OUT


cdef bint is_publish_in_transaction(HeaderView* view) noexcept nogil:
    """True if a header is that of a publish with a topic and only keys that a transaction allows.

    The view of a header without a command is completed.
    """
    cdef Slice* command = &view.field[<int>FIELD_CMD]
    if view.present & ~PUBLISH_FIELDS or part_length(view, <int>FIELD_TOPIC) == 0:
        return False
    if view.escaped & ((<uint64_t>1 << <int>FIELD_TOPIC) | (<uint64_t>1 << <int>FIELD_CMD)):
        return False
    if not has(view, <int>FIELD_CMD):
        command.data = b"p"
        command.length = 1
        view.present |= <uint64_t>1 << <int>FIELD_CMD
    elif not (
        (command.length == 1 and command.data[0] == c'p')
        or (command.length == 7 and memcmp(command.data, b"publish", 7) == 0)
    ):
        return False
    return (
        part_length(view, <int>FIELD_CORRELATION_ID) <= PART_LIMIT
        and part_length(view, <int>FIELD_SOW_KEY) <= PART_LIMIT
    )


cdef int put_transaction(Ingress connection) except -1:
    """Lay out the current frame in the ring if it is a plain transaction of messages leased to this connection.

    Returns 0 when done, RING_FULL if there is no room yet, COMMAND if Python must process the frame.
    """
    cdef const HeaderView* view = &connection.view
    cdef const Slice* command = &view.field[<int>FIELD_CMD]
    cdef const Slice* bookmarks = &view.field[<int>FIELD_BOOKMARK]
    cdef const Slice* wanted = &view.field[<int>FIELD_ACK_TYPE]
    cdef Slice command_id = view.field[<int>FIELD_CMD_ID]  # laying out reads other headers into the view
    cdef uint64_t first = connection.given_sequence
    cdef uint64_t length
    cdef uint32_t publishes = 0
    cdef TopicEntry queue
    cdef uint8_t* room
    if command.length != 11 or memcmp(command.data, b"transaction", 11) != 0:
        return COMMAND
    if view.present != COMMAND_FIELDS or view.escaped or first == 0:
        return COMMAND
    if wanted.length != 9 or memcmp(wanted.data, b"persisted", 9) != 0:
        return COMMAND
    if not is_plain_id(command_id.data, command_id.length):
        return COMMAND
    queue = connection.find_entry()
    if queue is None or queue.queue < 0:
        return COMMAND
    if connection.checked and not (
        queue.number < connection.permission_count and connection.permissions[queue.number] & 4
    ):
        return COMMAND
    if not scratch_acks.parse(
        <const uint8_t*>bookmarks.data, bookmarks.length, connection.leases, <uint32_t>queue.queue
    ):
        return COMMAND
    drop_repeated(scratch_acks)
    if scratch_acks.unknown or scratch_acks.count > ENTRIES_PER_RECORD:
        return COMMAND
    length = room_for_group(connection, scratch_acks.count)
    if length == 0 or length > connection.ring.capacity // 8 or connection.has_refused:
        return COMMAND
    if length >= load_relaxed(&connection.control.data.refused_from_bytes):
        return COMMAND
    if connection.ring.backlog_reaches(BACKLOG_BYTES):
        return RING_FULL
    pending_of(connection).make_room()  # nothing may fail once it is in the ring
    room = connection.ring.reserve(<uint32_t>length)
    if room == NULL:
        return RING_FULL
    qsort(scratch_acks.entries, scratch_acks.count, sizeof(QueueEntry), by_position)
    if lay_out_group(connection, room, length, scratch_acks, queue, first, &length, &publishes) != LAID_OUT:
        return COMMAND
    connection.ring.commit(<uint32_t>length)
    scratch_acks.end_leases(connection.leases, <uint32_t>queue.queue)
    note_transaction(connection, command_id.data, command_id.length, first, publishes)
    return 0


cdef int note_transaction(
    Ingress connection, const char* command_id, uint64_t command_id_bytes, uint64_t first, uint32_t publishes
) except -1:
    """Note that a transaction is in the ring. command_id: NULL = Python answers it."""
    connection.messages += publishes
    connection.sequence = max(connection.sequence, first + publishes)
    pending_of(connection).add(command_id, command_id_bytes, first, first + publishes, connection.ring.pending_head)
    return 0


cdef PendingTransactions pending_of(Ingress connection):
    if connection.transactions is None:
        connection.transactions = PendingTransactions()
    return connection.transactions
