# The transactions of one connection that are in the ring or in the log, and not answered: 64 bytes for each.
#
# They are kept in the order of the ring, in which they are also answered. Each goes through two steps. It is *decided*
# when the core has read it: then it has its effect, or the core has told its refusal before. It is *durable* when the
# log is durable up to what the core had written by then, and, with destinations of replication, when those that are
# sync have acknowledged it (wire/destinations.pxi). A success is answered here: a client may have a hundred thousand
# transactions in a second, so none of them is a Python object. Python answers the *attended* ones
# (amps/server/transport/transacting.py): those that are refused, those with other answers besides `persisted`, and
# those whose command id is long, or has other characters than printable ones of ASCII.
#
# Invariant: answered <= decided <= added; these are counts from the beginning of the connection.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from amps._core.wire.persisted cimport WAIT_NONE, Destinations, Messages

cdef uint64_t NEVER = <uint64_t>-1  # all destinations

cdef enum:
    COMMAND_ID_MAX = 38
    PENDING_FIRST = 16             # a power of two
    KEPT_CAPACITY = 1024           # as many may stay allocated
    SUCCESS_BYTES = 128            # an answer is not longer

cdef struct PendingTransaction:
    uint64_t first                 # sequences
    uint64_t last
    uint64_t position              # behind it: in the ring; when it is decided, in the log
    uint8_t attended
    uint8_t command_id_bytes
    char command_id[COMMAND_ID_MAX]


cdef inline bint is_plain_id(const char* text, uint64_t length) noexcept nogil:
    """True if a command id can be answered here. What stands unescaped in a header can be copied to another one."""
    cdef uint64_t at
    if length == 0 or length > COMMAND_ID_MAX:
        return False
    for at in range(length):
        if text[at] < 0x20 or text[at] > 0x7E or text[at] == c'"' or text[at] == c"\\":
            return False
    return True


cdef inline char* put_text(char* at, const char* text, uint64_t length) noexcept nogil:
    memcpy(at, text, length)
    return at + length


cdef uint32_t success_frame(char* at, const PendingTransaction* pending) noexcept nogil:
    """Write the answer to a transaction that has its effect; return its length, at most SUCCESS_BYTES."""
    cdef char digits[20]
    cdef uint64_t number = pending.last
    cdef int count = 0
    cdef char* end = at + 4
    cdef uint32_t length
    end = put_text(end, b'{"c":"ack","cid":"', 18)
    end = put_text(end, pending.command_id, pending.command_id_bytes)
    end = put_text(end, b'","a":"persisted","status":"success","s":', 41)
    while True:
        digits[count] = <char>(c"0" + number % 10)
        count += 1
        number //= 10
        if not number:
            break
    while count:
        count -= 1
        end[0] = digits[count]
        end += 1
    end[0] = c"}"
    length = <uint32_t>(end + 1 - at)
    at[0] = <char>((length - 4) >> 24)
    at[1] = <char>((length - 4) >> 16)
    at[2] = <char>((length - 4) >> 8)
    at[3] = <char>(length - 4)
    return length


@cython.final
cdef class PendingTransactions:
    """The transactions of one connection that are not answered; see the head of this file."""

    cdef PendingTransaction* entries     # a ring
    cdef uint64_t capacity               # a power of two; 0 = no memory yet
    cdef uint64_t answered, decided, added

    def __dealloc__(self):
        free(self.entries)

    @property
    def undecided(self):
        """The number of transactions that the core has not read, as far as is known."""
        return self.added - self.decided

    @property
    def awaits_durable(self):
        """Whether a decided transaction is not answered."""
        return self.answered < self.decided

    def __len__(self):
        return self.added - self.answered

    cdef PendingTransaction* entry(self, uint64_t number) noexcept nogil:
        return &self.entries[number & (self.capacity - 1)]

    cdef int add(
        self, const char* command_id, uint64_t command_id_bytes, uint64_t first, uint64_t last, uint64_t position
    ) except -1:
        """Add a transaction that has been put into the ring. NULL: Python answers it. Fails only without room."""
        cdef PendingTransaction* pending
        self.make_room()
        pending = self.entry(self.added)
        pending.first = first
        pending.last = last
        pending.position = position
        pending.attended = command_id == NULL
        pending.command_id_bytes = 0
        if command_id != NULL:
            pending.command_id_bytes = <uint8_t>command_id_bytes
            memcpy(pending.command_id, command_id, command_id_bytes)
        self.added += 1
        return 0

    cdef int make_room(self) except -1:
        """Make room for one more."""
        cdef uint64_t capacity = max(2 * self.capacity, <uint64_t>PENDING_FIRST)
        cdef uint64_t number
        cdef PendingTransaction* entries
        if self.added - self.answered < self.capacity:
            return 0
        entries = <PendingTransaction*>malloc(capacity * sizeof(PendingTransaction))
        if entries == NULL:
            raise MemoryError()
        for number in range(self.answered, self.added):
            entries[number & (capacity - 1)] = self.entry(number)[0]
        free(self.entries)
        self.entries = entries
        self.capacity = capacity
        return 0

    cdef void give_memory_back(self) noexcept:
        """Free memory for many transactions when none is pending."""
        if self.added == self.answered and self.capacity > KEPT_CAPACITY:
            free(self.entries)
            self.entries = NULL
            self.capacity = 0

    def decide(self, uint64_t consumed, uint64_t written, uint64_t refused):
        """Note that the core has read the ring up to `consumed`, and had written the log up to `written` by then.

        refused: the first sequence of the next transaction that it has refused; 0 = none. Returns None when all that
        was read is decided. Otherwise a transaction that Python answers: command id (empty if Python knows it), first
        and last sequence; call again then.
        """
        cdef PendingTransaction* pending
        while self.decided < self.added:
            pending = self.entry(self.decided)
            if pending.position > consumed:
                return None
            pending.position = written
            self.decided += 1
            if pending.attended or pending.first == refused:
                pending.attended = True
                return pending.command_id[: pending.command_id_bytes], pending.first, pending.last
        return None

    @property
    def awaited_position(self):
        """Log position up to which the first transaction that is decided and not answered waits; 0: there is none."""
        return self.entry(self.answered).position if self.answered < self.decided else 0

    cdef bint is_persisted(self, uint64_t number, uint64_t durable, Destinations destinations, uint64_t publisher_id):
        """Whether a decided transaction is fully persisted. destinations: None = there are none."""
        cdef Messages messages
        messages.before = self.entry(number).position
        if messages.before > durable:
            return False
        if destinations is None:
            return True
        messages.publisher_id = publisher_id
        messages.derived_id = 0
        messages.carriers = NEVER
        messages.known_only = 0
        return destinations.find(&messages).kind == WAIT_NONE

    def answers(self, uint64_t durable, Destinations destinations=None, uint64_t publisher_id=0):
        """The answers to transactions of a publisher that are persisted, in order, as frames; and whether an attended
        one is due next.

        It counts as answered. destinations: None = there are none.
        """
        cdef PendingTransaction* pending
        cdef uint64_t until = self.answered
        cdef uint64_t length = 0
        cdef bytearray frames
        while (
            until < self.decided
            and not self.entry(until).attended
            and self.is_persisted(until, durable, destinations, publisher_id)
        ):
            until += 1
        frames = bytearray((until - self.answered) * SUCCESS_BYTES)
        while self.answered < until:
            length += success_frame(PyByteArray_AS_STRING(frames) + length, self.entry(self.answered))
            self.answered += 1
        PyByteArray_Resize(frames, <Py_ssize_t>length)
        if (
            self.answered < self.decided
            and self.entry(self.answered).attended
            and self.is_persisted(self.answered, durable, destinations, publisher_id)
        ):
            self.answered += 1
            return frames, True
        self.give_memory_back()
        return frames, False
