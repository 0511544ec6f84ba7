# Conflation of a replay: the newest message of each key in an interval is delivered.
#
# A message is *held* until the interval has passed that began with the first message held for its key. A later message
# of that key replaces it, but bookmark and timestamp stay those of the first one, so that a client that resumes there
# loses no message. The time is that of the replayed messages, and that of the clock once the replay has caught up
# (transaction_log.md §11). All intervals have the same length, so held messages are due in the order in which their
# intervals began.
#
# A key consists of the topic and the values of the key fields, as text; for SOW topics it may be the record's key.
# Missing fields count as NULL; a message that cannot be read is not conflated. Held messages are copies, and their
# memory is bounded: beyond HELD_BYTES_MAX, the oldest ones are due at once.

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from collections import deque

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from amps._core.values.fields cimport ByteBuffer, FieldSet, FieldValues
from amps._core.journal.record cimport RecordHeader, RecordState, record_payload, record_state
from amps._core.values.value cimport VALUE_NULL, Value, to_text

HELD_BYTES_MAX = 64 << 20
AUTO_INTERVAL_MIN_S = 0.05
AUTO_INTERVAL_MAX_S = 5.0
AUTO_INTERVAL_BEGIN_S = 0.1

cdef enum:
    HELD_EXTRA_BYTES = 256         # memory of a held message besides its record and key
    NULL_LENGTH = 0xFFFFFFFF


@cython.final
cdef class Held:

    def __cinit__(self):
        self.record = NULL
        self.base = NULL

    def __dealloc__(self):
        free(self.record)
        free(self.base)

    cdef int keep(self, const RecordHeader* record) except -1:
        """Keep a copy of a record in place of the kept one, with the bookmark and timestamp of the first."""
        cdef RecordHeader* copy = <RecordHeader*>malloc(record.length)
        if copy == NULL:
            raise MemoryError()
        memcpy(copy, record, record.length)
        if self.record != NULL:
            copy.publisher_id = self.record.publisher_id
            copy.sequence = self.record.sequence
            copy.timestamp_ns = self.record.timestamp_ns
            free(self.record)
        self.record = copy
        return 0

    cdef int keep_base(self, const RecordHeader* record) except -1:
        """Keep a copy of the value before the interval."""
        self.base = <RecordHeader*>malloc(record.length)
        if self.base == NULL:
            raise MemoryError()
        memcpy(self.base, record, record.length)
        return 0

    cdef uint64_t memory(self) noexcept:
        """Bytes of memory that it takes."""
        cdef uint64_t bytes_ = self.record.length + <uint64_t>PyBytes_GET_SIZE(self.key) + HELD_EXTRA_BYTES
        if self.base != NULL:
            bytes_ += self.base.length
        if self.changes is not None:
            bytes_ += self.changes.capacity
        return bytes_


@cython.final
cdef class Conflation:

    def __init__(self, evaluation, paths, interval_s, held_bytes_max=HELD_BYTES_MAX):
        """paths: those of the key fields; None: the key is that of the SOW topic, and messages of other topics are not
        conflated. interval_s: None for an interval that adapts to the speed of the client.
        """
        self.held_bytes_max = held_bytes_max
        self.evaluation = evaluation
        self.fields = None if paths is None else FieldSet(paths)
        self.buffer = ByteBuffer()
        self.adapts = interval_s is None
        self.interval_ns = <uint64_t>((AUTO_INTERVAL_BEGIN_S if interval_s is None else interval_s) * 1e9)
        self.by_key = {}
        self.in_order = deque()
        self.held_bytes = 0

    def __len__(self):
        return len(self.in_order)

    @property
    def due_ns(self):
        """UNIX time in ns at which the first held message is due; None if none is held."""
        return (<Held>self.in_order[0]).due_ns if self.in_order else None

    @property
    def before_first(self):
        """Bookmark of the record before all held messages, or of an earlier one (`stepped_at`); None: none is held."""
        cdef Held held
        if not self.in_order:
            return None
        held = <Held>self.in_order[0]
        return held.before_publisher_id, held.before_sequence

    @property
    def stepped_at(self):
        """Log position of the first held message if `before_first` is the bookmark of an earlier record, because
        records before it were stepped over; else 0.
        """
        return (<Held>self.in_order[0]).stepped_at if self.in_order else 0

    def settle(self, uint64_t publisher_id, uint64_t sequence):
        """Set the bookmark of the record just before `stepped_at`."""
        cdef Held held = <Held>self.in_order[0]
        held.before_publisher_id = publisher_id
        held.before_sequence = sequence
        held.stepped_at = 0

    def adapt(self, bint behind):
        """Adapt an adaptive interval: it grows if the client is behind, else it shrinks."""
        if self.adapts:
            factor = 2.0 if behind else 0.9
            interval_s = min(max(self.interval_ns / 1e9 * factor, AUTO_INTERVAL_MIN_S), AUTO_INTERVAL_MAX_S)
            self.interval_ns = <uint64_t>(interval_s * 1e9)

    cdef bytes key_of(self, const RecordHeader* record, TopicEntry entry, uint64_t sow_key=0):
        """The key of a message; None if it has none, or cannot be read. sow_key: of a record of a SOW topic; 0: the
        message says it.
        """
        cdef const RecordState* state
        cdef FieldValues values = self.evaluation.values
        cdef ByteBuffer buffer = self.buffer
        cdef uint32_t number = entry.number
        cdef uint32_t length
        cdef uint32_t slot
        cdef int32_t at
        cdef Value value
        buffer.length = 0
        buffer.append(&number, sizeof(number))
        if self.fields is None:
            if sow_key == 0:
                state = record_state(record)
                if state == NULL:
                    return None
                sow_key = state.key
            buffer.append(&sow_key, sizeof(sow_key))
            return PyBytes_FromStringAndSize(<char*>buffer.data, <Py_ssize_t>buffer.length)
        values.begin(self.fields)
        try:
            if not self.evaluation.extractor.extract(
                record_payload(record), record.payload_length, self.fields, 0, values
            ):
                return None
            for slot in range(self.fields.slot_count):
                length = values.slots[slot].count
                buffer.append(&length, sizeof(length))
                at = values.slots[slot].first
                while at >= 0:
                    value = values.nodes[at].value
                    to_text(&value, values.arena)
                    length = <uint32_t>NULL_LENGTH if value.kind == VALUE_NULL else value.length
                    buffer.append(&length, sizeof(length))
                    if value.kind != VALUE_NULL:
                        buffer.append(value.text, value.length)
                    at = values.nodes[at].next
        except MemoryError:
            return None
        return PyBytes_FromStringAndSize(<char*>buffer.data, <Py_ssize_t>buffer.length)

    cdef bint hold(
        self, const RecordHeader* record, TopicEntry entry, uint64_t before_publisher_id, uint64_t before_sequence,
        bint stepped
    ) except -1:
        """Hold a message. False: it cannot be held, and must be delivered at once.

        before_publisher_id, before_sequence: bookmark of the record before it, or of an earlier one if records were
        stepped over (`stepped`).
        """
        cdef bytes key = self.key_of(record, entry)
        cdef Held held
        if key is None:
            return False
        held = <Held>self.by_key.get(key)
        if held is not None:
            held.keep(record)
            self.count(held)
            return True
        held = self.begin(key, record, entry, record.timestamp_ns)
        held.before_publisher_id = before_publisher_id
        held.before_sequence = before_sequence
        held.stepped_at = record.position if stepped else 0
        return True

    cdef Held begin(self, bytes key, const RecordHeader* record, TopicEntry entry, uint64_t time_ns):
        """Begin an interval for a key at a time, with a copy of a record."""
        cdef Held held = Held()
        held.keep(record)
        held.entry = entry
        held.key = key
        held.due_ns = time_ns + self.interval_ns
        self.by_key[key] = held
        self.in_order.append(held)
        self.count(held)
        return held

    cdef int count(self, Held held) except -1:
        """Account for the memory of a held message that was changed."""
        cdef uint64_t bytes_ = held.memory()
        self.held_bytes += bytes_ - held.bytes
        held.bytes = bytes_
        return 0

    cdef Held first(self):
        """The held message that is due first; None if none is held."""
        return <Held>self.in_order[0] if self.in_order else None

    cdef bint is_due(self, Held held, uint64_t now_ns):
        return held.due_ns <= now_ns or self.held_bytes > self.held_bytes_max

    cdef int release(self, Held held) except -1:
        """Drop the first held message after its delivery."""
        self.in_order.popleft()
        del self.by_key[held.key]
        self.held_bytes -= held.bytes
        return 0
