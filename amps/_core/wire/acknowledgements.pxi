# Acknowledgements of queue messages: from the bookmarks of a `sow_delete` to a record for the core.
#
# A list of bookmarks is parsed in the receive buffer. Position and slot of each message come from the leases of the
# connection (wire/leases.pxi). A message without a lease is *unknown* here: Python searches it in the journal and sets
# its position before the record is made.
#
# journal/queue_records.pxd defines the record. As with a publish, the server numbers an acknowledgement without a
# sequence, under the publisher's derived id. A list that is longer than ENTRIES_PER_RECORD becomes several records.
# Only the last of them has the sequence. So if the last record is lost and the publisher sends the command again, the
# command is not treated as a duplicate. The earlier records, applied twice, find that their messages are gone.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from amps._core.journal.queue_records cimport (
    QUEUE_ACKNOWLEDGE,
    QUEUE_CANCEL,
    QUEUE_EXPIRE,
    QUEUE_EXTEND_LEASE,
    QueueAcknowledgementHeader,
    QueueEntry,
)
from amps._core.journal.record cimport (
    EXTENSION_CLIENT,
    EXTENSION_CLIENT_BYTES,
    FLAG_DERIVED_PUBLISHER,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    RecordHeader,
    align8,
    put_extension,
)
from amps._core.wire.framing cimport (
    FIELD_ACK_TYPE,
    FIELD_BOOKMARK,
    FIELD_CMD,
    FIELD_CMD_ID,
    FIELD_OPTS,
    FIELD_SEQ,
    FIELD_TOPIC,
    HeaderView,
    Slice,
    field_u64,
)

cdef uint64_t NEEDED_FIELDS = (
    (<uint64_t>1 << <int>FIELD_CMD) | (<uint64_t>1 << <int>FIELD_TOPIC) | (<uint64_t>1 << <int>FIELD_BOOKMARK)
)
cdef uint64_t PLAIN_FIELDS = (
    NEEDED_FIELDS | (<uint64_t>1 << <int>FIELD_CMD_ID) | (<uint64_t>1 << <int>FIELD_OPTS)
    | (<uint64_t>1 << <int>FIELD_SEQ) | (<uint64_t>1 << <int>FIELD_ACK_TYPE)
)

ACTION_ACKNOWLEDGE = QUEUE_ACKNOWLEDGE
ACTION_CANCEL = QUEUE_CANCEL
ACTION_EXPIRE = QUEUE_EXPIRE
ACTION_EXTEND_LEASE = QUEUE_EXTEND_LEASE
ENTRIES_PER_RECORD_MAX = ENTRIES_PER_RECORD

cdef enum:
    DIGITS_MAX = 20

cdef uint64_t U64_MAX = 0xFFFFFFFFFFFFFFFF


cdef inline bint has(const HeaderView* view, int field) noexcept nogil:
    return view.present & (<uint64_t>1 << field) != 0


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == c' ' or (c'\t' <= byte <= c'\r')


cdef inline uint64_t after_blanks(const uint8_t* text, uint64_t at, uint64_t length) noexcept nogil:
    while at < length and is_blank(text[at]):
        at += 1
    return at


cdef inline uint64_t after_number(const uint8_t* text, uint64_t at, uint64_t length, uint64_t* value) noexcept nogil:
    """The place behind a number of 64 bits; `at` if there is none."""
    cdef uint64_t first = at
    cdef uint64_t number = 0
    cdef uint64_t digit
    while at < length and c'0' <= text[at] <= c'9':
        digit = text[at] - c'0'
        if at - first == DIGITS_MAX or number > (U64_MAX - digit) // 10:
            return first
        number = number * 10 + digit
        at += 1
    value[0] = number
    return at


cdef bint after_bookmark(
    const uint8_t* text, uint64_t* place, uint64_t length, uint64_t* publisher_id, uint64_t* sequence
) noexcept nogil:
    """Read one bookmark of a message, up to a comma or the end: `<publisher>|<sequence>`, optionally followed by `|`, a
    text and another `|`. Returns False if there is no such bookmark; place[0] is then the place of the error.
    """
    cdef uint64_t at = after_blanks(text, place[0], length)
    cdef uint64_t behind = after_number(text, at, length, publisher_id)
    place[0] = at
    # No publisher has the id 0. `0|1|` is NOW, which does not name a message.
    if behind == at or publisher_id[0] == 0:
        return False
    at = place[0] = after_blanks(text, behind, length)
    if at == length or text[at] != c'|':
        return False
    at = place[0] = after_blanks(text, at + 1, length)
    behind = after_number(text, at, length, sequence)
    if behind == at:
        return False
    at = after_blanks(text, behind, length)
    if at < length and text[at] == c'|':
        at += 1
        while at < length and text[at] != c'|' and text[at] != c',':
            at += 1
        if at < length and text[at] == c'|':
            at = after_blanks(text, at + 1, length)
    place[0] = at
    return at == length or text[at] == c','


@cython.final
cdef class AckList:
    """The messages of one acknowledgement, in the order in which the client named them."""

    def __cinit__(self):
        self.entries = NULL

    def __init__(self):
        self.count = 0
        self.capacity = 0
        self.unknown = 0
        self.malformed = 0
        self.first_malformed = None

    def __dealloc__(self):
        free(self.entries)

    def parse_text(self, bytes text, LeaseTable leases, uint32_t queue):
        """Parse the bookmarks of a header, separated by commas. Returns False if some items are not bookmarks of
        messages; these are omitted and counted in `malformed`.

        leases: the leases of the client, or None. queue: number of the queue whose messages it acknowledges.
        """
        return self.parse(<const uint8_t*>PyBytes_AS_STRING(text), <uint64_t>len(text), leases, queue)

    cdef bint parse(self, const uint8_t* text, uint64_t length, LeaseTable leases, uint32_t queue) except -1:
        """Parse bookmarks as `parse_text` does, from bytes in memory."""
        cdef uint64_t at = 0
        cdef uint64_t begin
        cdef uint64_t publisher_id = 0
        cdef uint64_t sequence = 0
        self.count = 0
        self.unknown = 0
        self.malformed = 0
        self.first_malformed = None
        while True:
            begin = at
            if after_bookmark(text, &at, length, &publisher_id, &sequence):
                self.append(publisher_id, sequence, leases, queue)
            else:
                while at < length and text[at] != c',':
                    at += 1
                if self.malformed == 0:
                    self.first_malformed = (<const char*>text + begin)[: at - begin]
                self.malformed += 1
            if at == length:
                return self.malformed == 0
            at += 1

    cdef int append(self, uint64_t publisher_id, uint64_t sequence, LeaseTable leases, uint32_t queue) except -1:
        """Add a message, with the position and slot in the lease table if it has an entry there."""
        cdef const Lease* lease = NULL if leases is None else leases.find(publisher_id, sequence, queue)
        if lease != NULL:
            return self.put(publisher_id, sequence, lease.position, lease.slot)
        self.unknown += 1
        return self.put(publisher_id, sequence, 0, 0)

    cdef int put(self, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t slot) except -1:
        """Add a message with its position and slot."""
        cdef QueueEntry* entry
        cdef QueueEntry* grown
        cdef uint32_t capacity
        if self.count == self.capacity:
            capacity = max(16, self.capacity * 2)
            grown = <QueueEntry*>realloc(self.entries, capacity * sizeof(QueueEntry))
            if grown == NULL:
                raise MemoryError()
            self.entries = grown
            self.capacity = capacity
        entry = &self.entries[self.count]
        entry.publisher_id = publisher_id
        entry.sequence = sequence
        entry.position = position
        entry.slot = slot
        entry.reasons = 0
        self.count += 1
        return 0

    def unknown_bookmarks(self):
        """[(number of the entry, publisher id, sequence)] of the entries without a log position."""
        cdef uint32_t at
        return [
            (at, self.entries[at].publisher_id, self.entries[at].sequence)
            for at in range(self.count)
            if self.entries[at].position == 0
        ]

    def set_position(self, uint32_t number, uint64_t position):
        """Set the log position of an entry's message. Raises IndexError."""
        if number >= self.count:
            raise IndexError(number)
        if self.entries[number].position == 0 and position:
            self.unknown -= 1
        self.entries[number].position = position

    def fill_transaction_entries(self, bytearray record not None):
        """Write the entries, which have their positions now, into the record of their transaction."""
        cdef uint64_t length = self.count * sizeof(QueueEntry)
        if <uint64_t>len(record) < ENTRIES_OFFSET + length:
            raise ValueError("the record is not that of these acknowledgements")
        qsort(self.entries, self.count, sizeof(QueueEntry), by_position)
        memcpy(<uint8_t*><char*>record + ENTRIES_OFFSET, self.entries, length)

    def end_leases_of(self, LeaseTable leases, uint32_t queue):
        """Remove the leases of the acknowledged messages."""
        self.end_leases(leases, queue)

    cdef void end_leases(self, LeaseTable leases, uint32_t queue) noexcept:
        cdef uint32_t at
        for at in range(self.count):
            leases.drop(self.entries[at].publisher_id, self.entries[at].sequence, queue)

    cdef list records(self, Acknowledging* about):
        """The whole list as records of at most ENTRIES_PER_RECORD entries, as bytes.

        An empty list makes one record too, because it has a sequence.
        """
        cdef list made = []
        cdef uint64_t sequence = about.sequence
        cdef uint32_t at = 0
        cdef uint32_t count
        cdef uint64_t length
        cdef bytes record
        while at < self.count or not made:
            count = min(self.count - at, <uint32_t>ENTRIES_PER_RECORD)
            about.sequence = sequence if at + count == self.count else 0
            length = acknowledgement_length(about, count)
            record = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>align8(length))
            lay_out(<RecordHeader*>PyBytes_AS_STRING(record), about, self.entries + at, count)
            made.append(record[:length])
            at += count
        about.sequence = sequence
        return made


def make_records(
    AckList acks, uint32_t slot, uint32_t serial, uint32_t topic, uint32_t action, uint64_t extension_ns,
    uint64_t searched_until, uint32_t token, uint64_t publisher_id, uint64_t derived_id, bint numbered,
    uint64_t sequence,
):
    """Ring records (bytes) for a list of acknowledgements.

    slot, serial: of the connection. topic: the transport's number of the queue's name. searched_until: log position up
    to which unknown bookmarks were searched. token: not 0 if the core must return the counts. derived_id: id of the
    publisher for commands without a sequence (0), if `numbered`.
    """
    cdef Acknowledging about
    about.slot = slot
    about.serial = serial
    about.topic = topic
    about.action = action
    about.extension_ns = extension_ns
    about.searched_until = searched_until
    about.token = token
    about.numbered = numbered
    about.publisher_id = publisher_id
    about.derived_id = derived_id
    about.sequence = sequence
    return acks.records(&about)


cdef bint read_plain(const HeaderView* view, Acknowledging* about) noexcept nogil:
    """True if a header is a `sow_delete` with only fields and options that are supported here.

    Action and sequence of `about` are set then. The caller checks the topic and the requested acknowledgements.
    """
    cdef const Slice* command = &view.field[<int>FIELD_CMD]
    cdef const Slice* options = &view.field[<int>FIELD_OPTS]
    if command.length != 10 or memcmp(command.data, b"sow_delete", 10) != 0:
        return False
    if view.present & ~PLAIN_FIELDS or NEEDED_FIELDS & ~view.present or view.escaped:
        return False
    about.action = QUEUE_ACKNOWLEDGE
    if has(view, <int>FIELD_OPTS) and options.length:
        if options.length != 6:
            return False
        if memcmp(options.data, b"cancel", 6) == 0:
            about.action = QUEUE_CANCEL
        elif memcmp(options.data, b"expire", 6) == 0:
            about.action = QUEUE_EXPIRE
        else:
            return False
    about.sequence = 0
    if has(view, <int>FIELD_SEQ):
        if field_u64(view, FIELD_SEQ, &about.sequence) < 0 or about.sequence == 0:
            return False
    about.extension_ns = 0
    about.searched_until = 0
    about.token = 0
    return True


cdef uint64_t acknowledgement_length(const Acknowledging* about, uint32_t count) noexcept nogil:
    """The length in bytes of a record with `count` entries, without padding."""
    cdef uint64_t length = RECORD_HEADER_BYTES + sizeof(QueueAcknowledgementHeader) + count * sizeof(QueueEntry)
    return length + (EXTENSION_CLIENT_BYTES if about.numbered and about.sequence == 0 else 0)


cdef void lay_out(
    RecordHeader* record, const Acknowledging* about, const QueueEntry* entries, uint32_t count
) noexcept nogil:
    """Write the record, into memory for its length with padding. The core fills in time, position and checksum."""
    cdef uint64_t length = acknowledgement_length(about, count)
    cdef uint8_t* at = <uint8_t*>record + RECORD_HEADER_BYTES
    cdef QueueAcknowledgementHeader* header
    memset(record, 0, RECORD_HEADER_BYTES)
    (<uint64_t*>(<uint8_t*>record + align8(length) - 8))[0] = 0
    record.length = <uint32_t>length
    record.position = about.slot | (<uint64_t>about.serial << 32)
    record.topic_id = about.topic
    record.kind = KIND_QUEUE_ACKNOWLEDGEMENT
    record.expiration_s = NO_EXPIRATION
    record.publisher_id = about.publisher_id
    record.sequence = about.sequence
    if about.numbered and about.sequence == 0:
        record.flags = FLAG_DERIVED_PUBLISHER
        record.publisher_id = about.derived_id
        record.extension_length = EXTENSION_CLIENT_BYTES
        at = put_extension(at, EXTENSION_CLIENT, &about.publisher_id)
    record.payload_length = <uint32_t>(sizeof(QueueAcknowledgementHeader) + count * sizeof(QueueEntry))
    header = <QueueAcknowledgementHeader*>at
    header.action = about.action
    header.count = count
    header.extension_ns = about.extension_ns
    header.searched_until = about.searched_until
    header.token = about.token
    header.domain = 0
    memcpy(at + sizeof(QueueAcknowledgementHeader), entries, count * sizeof(QueueEntry))
