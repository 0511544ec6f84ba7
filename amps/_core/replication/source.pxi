# The source flow of one destination: the records of this log that one instance is to get, and which of them it has.
#
# It lives as long as the destination leads to the same instance, with a connection or without. Up to three cursors move
# through the log:
#
# - `scanning` reads each durable record once, decides whether it goes to the destination, and notes its publisher in
#   the pending table. It must go on without a connection, too: a publisher whose messages do not go there must not
#   wait.
# - `sending` sends, from where the sink wants it on. When it has caught up, it is None: then the scan sends as well.
# - `unacked` is at the first record that goes there and is not acknowledged. None: there is none before the scan.
#
# Acknowledgements and their exceptions are in acknowledged.pxi.
#
# Records from `trusted_from` on were written while this process ran. The scan reads them soon after, from memory as the
# core has written them, and does not check them: the sink checks every record that is sent.
# Records that came from the instance of the destination itself do not go back. The core tells stretches of them
# (shm/memory.pxd); the scan passes over those without reading.
#
# Invariants
# - `scanned_position` rises after the publishers of the records before it are in the pending table.
# - Records before `acked_position` are acknowledged, or do not go there. It never falls.
# - A transaction of which every record goes there is sent as one. Of any other, the records go like others (decision
#   25.60).

from collections import deque
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from amps._core.journal.reader cimport (
    LogFile,
    begin_reading,
    name_of_record,
    name_record_fits,
    next_record,
    skip_record,
)
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    KIND_NAME,
    KIND_TRANSACTION,
    NAME_CLIENT,
    NAME_INSTANCE,
    NAME_PATH,
    RECORD_HEADER_BYTES,
    TRANSACTION_BYTES,
    TransactionGroup,
    record_client_id,
    record_parts_fit,
    record_payload,
    record_sound,
    transaction_group,
)
from amps._core.shm.memory cimport PendingTable

from amps._core.journal.reader import read_file_header

cdef extern from "platform.h" nogil:
    void prefetch(const void* address)

cdef uint64_t NOTHING_TRUSTED = <uint64_t>-1
cdef uint64_t EVERYTHING = <uint64_t>-1  # `allowed` of a cursor without restrictions
cdef enum:
    RECORDS_AHEAD = 8
    CACHE_LINE = 64


cdef inline void prefetch_ahead(const RecordHeader* record) noexcept nogil:
    """Have the header of a record to come loaded, if the records are of about the same length."""
    prefetch(<const uint8_t*>record + RECORDS_AHEAD * align8(record.length))
    prefetch(<const uint8_t*>record + RECORDS_AHEAD * align8(record.length) + CACHE_LINE)


cdef int trust(LogCursor cursor, uint64_t trusted_from) except -1:
    """From a log position on, read records as they are in memory."""
    if cursor.position >= trusted_from and cursor.allowed != EVERYTHING:
        cursor.verify = False
        cursor.fetches = False
        cursor.allowed = EVERYTHING
        cursor.set_ready()
    return 0


cdef uint64_t NOT_KNOWN = <uint64_t>-1
cdef uint64_t NOWHERE = <uint64_t>-1     # log position that no cursor reaches
cdef enum:
    RETURNED_MAX = 64              # parts of stretches that are kept


@cython.final
cdef class ReturnedPart:
    """A part of a stretch of records that came from the destination's instance: from its beginning to some record."""

    cdef uint64_t begin            # log positions
    cdef uint64_t end
    cdef uint64_t last_txid
    cdef uint64_t last_time_ns


@cython.final
cdef class SourceFlow:
    """The flow to one instance of a destination.

    cursor: before `acked_position`, and not within a transaction; or at the beginning of the log. Its topics are
    TopicEntry objects. It, and the names, know what is before it in its journal. table: the destination's pending
    table, which was begun anew; None: nothing waits for it. acked_position, acked_txid: where the acknowledgements of
    this instance had got to, 0 if that is not known. going_txid: no record before `acked_position` that goes there has
    a higher transaction id; None: that is not known. trusted_from: log position from which on the scan does not verify
    checksums.
    """

    cdef Rules rules
    cdef PendingTable table
    # Whether acknowledgements wait for it now, and from which log position on: replication.md §8, set by the owner.
    cdef public bint waits
    cdef public uint64_t upgraded_at
    # the scan
    cdef LogCursor scanning
    cdef uint64_t trusted_from
    cdef readonly uint64_t passed_over_position  # of the last record that was scanned and does not go there
    cdef readonly uint64_t newest_time_ns      # log time of the last record that was scanned; 0: none
    cdef object returned           # deque of ReturnedPart that the scan has not passed, in the order of the log
    cdef uint64_t returned_from    # where the first one begins of which the end may be within the limit; NOWHERE
    cdef uint64_t last_going_txid              # of the scanned records that go there; NOT_KNOWN
    # sending
    cdef readonly bint connected
    cdef LogCursor sending         # None: the scan sends, or there is no connection
    cdef Outgoing out
    cdef uint64_t journal          # whose topics are in `sent_topics`
    cdef NumberMap sent_topics     # topic id -> 1
    cdef NumberMap sent_names      # name id -> 1
    cdef NumberMap vector          # publisher id -> highest sequence there; None: no longer needed
    cdef uint64_t vector_until     # log position up to which the vector counts
    cdef uint64_t start_txid
    cdef readonly uint64_t sent_txid           # last one sent, or the last one that the sink had at the start
    cdef uint64_t passed_txid      # last one that was sent or passed over
    cdef int64_t window_bytes
    cdef readonly uint64_t messages_out
    cdef readonly uint64_t bytes_out
    # acknowledgements: acknowledged.pxi
    cdef TxidSet acks
    cdef object sent_places        # deque of SentPlace on this connection, in the order of the log
    cdef uint64_t cleared_position  # everything before it is acknowledged, or does not go there
    cdef LogFile cleared_file      # whose records begin or end there; None: `unacked` is behind it, or it is not known
    cdef uint64_t cleared_txid
    cdef LogCursor unacked
    cdef Marks marks               # of pending records, for `unacked`
    cdef readonly uint64_t oldest_pending_time_ns  # log time of the record at `unacked`; 0: nothing is pending
    cdef readonly uint64_t acked_time_ns       # log time of the last record before `acked_position`; 0: none was read
    cdef readonly uint64_t settled             # rises when publishers may wait for less than before
    cdef Release release           # None: no search for publishers is under way, or known

    def __init__(
        self, Rules rules not None, LogCursor cursor not None, PendingTable table=None, uint64_t acked_position=0,
        uint64_t acked_txid=0, going_txid=None, uint64_t trusted_from=NOTHING_TRUSTED,
    ):
        self.rules = rules
        self.table = table
        self.waits = table is not None
        self.upgraded_at = 0
        self.scanning = cursor
        cursor.fetch()
        cursor.shows_structure = True
        self.trusted_from = trusted_from
        self.passed_over_position = 0
        self.newest_time_ns = 0
        self.returned = deque()
        self.returned_from = NOWHERE
        self.last_going_txid = NOT_KNOWN if going_txid is None else going_txid
        self.connected = False
        self.sending = None
        self.out = Outgoing()
        self.journal = 0
        self.sent_topics = NumberMap()
        self.sent_names = NumberMap()
        self.vector = None
        self.vector_until = 0
        self.start_txid = self.sent_txid = self.passed_txid = 0
        self.window_bytes = 0
        self.messages_out = self.bytes_out = 0
        self.acks = TxidSet(acked_txid)
        self.sent_places = deque()
        self.cleared_file = None
        self.cleared_position = acked_position
        self.cleared_txid = acked_txid
        self.unacked = None
        self.marks = Marks()
        self.oldest_pending_time_ns = self.acked_time_ns = 0
        self.settled = 0
        self.release = None

    # --- positions ------------------------------------------------------------------------------------

    @property
    def scanned_position(self):
        """Log position up to which it is known which records go there."""
        return self.scanning.position

    @property
    def sent_position(self):
        """Log position up to which all records that the destination lacks were sent on this connection."""
        return self.send_position()

    cdef inline uint64_t send_position(self) noexcept:
        return self.scanning.position if self.sending is None else self.sending.position

    @property
    def acked_position(self):
        """Log position before which every record that goes there is acknowledged."""
        return self.watermark()

    cdef inline uint64_t watermark(self) noexcept:
        return max(self.cleared_position, (self.scanning if self.unacked is None else self.unacked).position)

    @property
    def going_txid(self):
        """The last transaction id of the scanned records that go there, or a higher one; None: it is not known."""
        return None if self.last_going_txid == NOT_KNOWN else self.last_going_txid

    @property
    def window(self):
        """Bytes of records that may still be sent before the sink grants more; negative after a long record."""
        return self.window_bytes

    # --- acknowledgements -----------------------------------------------------------------------------

    @property
    def acked_txid(self):
        """Transaction id up to which every record that goes there is acknowledged."""
        return self.cleared_txid

    def ack(self, TxidSet acknowledged not None):
        """Count an acknowledgement of the sink. True: it says more than the last one; then call `follow_acks`."""
        return take_acks(self, acknowledged)

    def follow_acks(self, uint64_t bytes_max):
        """Move the watermark and the pending table to what is acknowledged, reading about `bytes_max` bytes of the log.

        True: both are up to date. False: call it again. Raises LogDamaged, LogRemoved.
        """
        return follow_unacked(self, bytes_max) and follow_exceptions(self, bytes_max)

    def is_acked(self, uint64_t txid):
        """Whether the record with that transaction id is acknowledged, if it goes there."""
        return holds(self, txid)

    # --- the scan -------------------------------------------------------------------------------------

    @property
    def scans_by_sending(self):
        """Whether `fill` scans what it sends. A `scan` then makes that two readings of the log."""
        return self.connected and self.sending is None

    def note_returned(self, uint64_t begin, uint64_t end, uint64_t last_txid, uint64_t last_time_ns):
        """All records between two log positions came from the destination's instance, and do not go back to it.

        last_txid, last_time_ns: of the last one. Calls follow the order of the log. The same `begin` with a higher
        `end` goes on with that stretch; a limit of `scan` or `fill` between two ends leads to the lower one.
        """
        cdef ReturnedPart part
        if end <= self.scanning.position:
            return
        if self.returned:
            part = <ReturnedPart>self.returned[len(self.returned) - 1]
            if part.end >= end:
                return
            if len(self.returned) == RETURNED_MAX:
                self.returned.pop()
        part = ReturnedPart()
        part.begin = begin
        part.end = end
        part.last_txid = last_txid
        part.last_time_ns = last_time_ns
        self.returned.append(part)

    def scan(self, uint64_t limit, uint64_t bytes_max):
        """Scan about `bytes_max` bytes of the log up to `limit`, a durable watermark. True: the limit is reached.

        Raises LogDamaged, LogRemoved.
        """
        if self.scanning.position >= limit:
            return True
        if self.connected and self.sending is None:
            self.sending = self.copy_of(self.scanning, True)
            trust(self.sending, self.trusted_from)
        return self.run(self.scanning, limit, bytes_max, True, False)

    cdef LogCursor copy_of(self, LogCursor cursor, bint structure):
        """Another cursor at the same place."""
        number, position = cursor.place()
        cdef LogCursor made = LogCursor(cursor.directory_of(), number, position, structure)
        made.fetch()
        made.shows_structure = structure
        return made

    # --- sending --------------------------------------------------------------------------------------

    def begin(
        self, LogCursor cursor not None, uint64_t limit, uint64_t start_txid, vector=b"", int64_t window=16 << 20
    ):
        """Send from now on: a connection is established.

        cursor: with nothing to send before it, and not within a transaction; as that of the constructor. limit: the
        durable watermark; records behind it are new to the sink. start_txid: the last transaction id of this log that
        the sink has. vector: pairs of 8 bytes, publisher id and highest sequence there. window: bytes of records that
        may be sent before the sink grants more. Raises StreamError for a malformed vector.
        """
        self.vector = map_of_pairs(vector)
        self.vector_until = limit
        if cursor.position < self.scanning.position and start_txid < self.last_going_txid:
            self.sending = cursor
            cursor.fetch()
            cursor.shows_structure = True
        else:
            self.sending = None  # the sink has every scanned record that goes there
        self.connected = True
        self.sent_places.clear()
        self.out = Outgoing()
        self.journal = 0
        self.sent_topics.clear()
        self.sent_names.clear()
        self.start_txid = self.sent_txid = start_txid
        self.passed_txid = 0
        self.window_bytes = window

    def end(self):
        """The connection is lost. What was sent and not acknowledged stays pending."""
        self.connected = False
        self.sent_places.clear()
        self.sending = None
        self.vector = None
        self.out = Outgoing()

    def credit(self, uint64_t count):
        """The sink grants that many bytes more."""
        self.window_bytes = min(self.window_bytes + <int64_t>min(count, <uint64_t>1 << 40), <int64_t>1 << 41)

    def fill(self, uint64_t limit, uint64_t bytes_max):
        """Read about `bytes_max` bytes of the log up to `limit`, a durable watermark, and return the frames to send.

        [(type, [part])] of NAMES and DATA frames: the parts of the payload, bytes or views of journals. It ends when
        the window is used up.
        Raises LogDamaged, LogRemoved.
        """
        cdef uint64_t begin = self.send_position()
        cdef uint64_t passed
        if not self.connected:
            return []
        if self.sending is not None:
            self.run(self.sending, min(limit, self.scanning.position), bytes_max, False, True)
            if self.sending.position >= self.scanning.position:
                self.sending = None
        if self.sending is None:
            passed = self.scanning.position - begin
            if passed < bytes_max:
                self.run(self.scanning, limit, bytes_max - passed, True, True)
        if self.vector is not None and self.send_position() >= self.vector_until:
            self.vector = None
        note_sent(self, self.scanning if self.sending is None else self.sending)
        clear_sent(self)
        return self.out.take()

    cdef bint run(self, LogCursor cursor, uint64_t limit, uint64_t bytes_max, bint scans, bint sends) except -1:
        """Move a cursor through about `bytes_max` bytes. True: the limit is reached."""
        cdef const RecordHeader* record
        cdef uint64_t begin = cursor.position
        if scans:
            trust(cursor, self.trusted_from)
            self.returned_from = (<ReturnedPart>self.returned[0]).begin if self.returned else NOWHERE
        begin_reading(cursor)
        while cursor.position - begin < bytes_max and (not sends or self.window_bytes > 0):
            if scans and cursor.position >= self.returned_from:
                self.pass_returned(cursor, limit, sends)
            record = next_record(cursor, limit)
            if record == NULL:
                return True
            prefetch_ahead(record)
            if record.kind == KIND_NAME:
                learn_name(self.rules.names, record, cursor)
                skip_record(cursor, record)
            elif record.kind == KIND_TRANSACTION:
                self.pass_group(cursor, record, scans, sends)
            else:
                self.pass_record(cursor, record, self.rules.goes(record, cursor), scans, sends)
                skip_record(cursor, record)
        return cursor.position >= limit

    cdef int pass_returned(self, LogCursor cursor, uint64_t limit, bint sends) except -1:
        """Move the scan over records that came from the destination's instance, as far as it is known and allowed."""
        cdef ReturnedPart part
        self.returned_from = NOWHERE
        while self.returned:
            part = <ReturnedPart>self.returned[0]
            if part.begin > cursor.position:
                self.returned_from = part.begin
                return 0
            if part.end > limit:
                return 0
            self.returned.popleft()
            if part.end > cursor.position:
                cursor.position = self.passed_over_position = part.end
                self.newest_time_ns = part.last_time_ns
                if sends:
                    self.passed_txid = part.last_txid
        return 0

    cdef inline int pass_record(
        self, LogCursor cursor, const RecordHeader* record, bint goes, bint scans, bint sends
    ) except -1:
        if scans:
            if goes:
                self.note(cursor, record)
            else:
                self.passed_over_position = record.position
            self.newest_time_ns = record.timestamp_ns
        if sends:
            if goes and not self.has_already(record):
                self.send(cursor, record)
            self.passed_txid = record.txid
        return 0

    cdef int pass_group(self, LogCursor cursor, const RecordHeader* transaction, bint scans, bint sends) except -1:
        """Handle a transaction record at a cursor with its group, and move behind it."""
        cdef LogFile file = cursor.file
        cdef uint64_t offset = cursor.position - file.start_position
        cdef const TransactionGroup* group = transaction_group(transaction)
        cdef const RecordHeader* record
        cdef uint64_t at = offset + TRANSACTION_BYTES
        cdef uint64_t end
        cdef bint whole = sends
        cdef bint goes
        if group == NULL or group.count == 0:
            raise LogDamaged(file.path, offset, "a transaction record is malformed")
        end = at + group.bytes
        file.need(offset, TRANSACTION_BYTES + group.bytes)
        transaction = <const RecordHeader*>(file.data + offset)
        while at != end:
            record = <const RecordHeader*>(file.data + at)
            if (
                end - at < RECORD_HEADER_BYTES or not record_parts_fit(record)
                or align8(record.length) > end - at or record.kind >= KIND_TRANSACTION
                or (cursor.verify and not record_sound(record))
            ):
                raise LogDamaged(file.path, at, "a record of a transaction is damaged")
            goes = self.rules.goes(record, cursor)
            if scans:
                self.pass_record(cursor, record, goes, True, False)
            whole = whole and goes and not self.has_already(record)
            at += align8(record.length)
        at = offset + TRANSACTION_BYTES
        while sends and at != end:
            record = <const RecordHeader*>(file.data + at)
            if whole and at == offset + TRANSACTION_BYTES:
                self.name_group(cursor, record, file.data + end)
                self.out.add_record(file, transaction)
                self.window_bytes -= TRANSACTION_BYTES
            if whole:
                self.put(file, record)
                self.passed_txid = record.txid
            else:
                self.pass_record(cursor, record, self.rules.goes(record, cursor), False, True)
            at += align8(record.length)
        if self.out.length >= BATCH:
            self.out.flush()
        cursor.position = file.start_position + end
        begin_reading(cursor)
        return 0

    cdef int name_group(self, LogCursor cursor, const RecordHeader* record, const uint8_t* end) except -1:
        """Give the sink the names that the records of a group use."""
        while <const uint8_t*>record < end:
            self.name(cursor, record)
            record = <const RecordHeader*>(<const uint8_t*>record + align8(record.length))
        return 0

    cdef int note(self, LogCursor cursor, const RecordHeader* record) except -1:
        """A scanned record goes to the destination: from now on it is pending."""
        self.last_going_txid = max(self.last_going_txid, record.txid)
        if record.position < self.cleared_position or holds(self, record.txid):
            return 0
        if self.unacked is None:
            self.unacked = self.copy_of(cursor, False)
            self.unacked.position = record.position
            trust(self.unacked, self.trusted_from)
            self.oldest_pending_time_ns = record.timestamp_ns
        self.marks.note(cursor.file, record, self.newest_time_ns)
        if self.table is not None:
            self.table.note(record.publisher_id, record.position, record.sequence, self.watermark())
        return 0

    cdef inline bint has_already(self, const RecordHeader* record) noexcept:
        """Whether the sink had a record at the start of the connection."""
        cdef MapEntry* found
        if record.txid <= self.start_txid:
            return True
        if self.vector is None or record.position >= self.vector_until:
            return False
        found = self.vector.find(record.publisher_id)
        return found != NULL and record.sequence <= found.value

    cdef int send(self, LogCursor cursor, const RecordHeader* record) except -1:
        """Put a record into the current frame."""
        self.name(cursor, record)
        self.put(cursor.file, record)
        if self.out.length >= BATCH:
            self.out.flush()
        return 0

    cdef inline int put(self, LogFile file, const RecordHeader* record) except -1:
        self.out.add_record(file, record)
        self.window_bytes -= <int64_t>align8(record.length)
        self.messages_out += 1
        self.bytes_out += align8(record.length)
        self.sent_txid = record.txid
        return 0

    cdef int name(self, LogCursor cursor, const RecordHeader* record) except -1:
        """Give the sink the names that a record uses, each once."""
        cdef TopicEntry entry
        cdef uint64_t path
        if cursor.file.number != self.journal or self.out.header.journal != self.journal:
            self.journal = cursor.file.number
            self.out.use_journal(self.journal)
            self.sent_topics.clear()
        if self.sent_topics.find(<uint64_t>record.topic_id + 1) == NULL:
            entry = <TopicEntry>known_topic(cursor, record)
            self.out.add_name(NAME_TOPIC, record.topic_id, entry.message_type.encode() + b"\t" + entry.raw_name)
            self.sent_topics.put(<uint64_t>record.topic_id + 1, 1)
        self.name_once(NAME_CLIENT, record_client_id(record))
        if record.extension_length:
            path = extension_word(record, EXTENSION_PATH, 0)
            if path:
                self.name_once(NAME_PATH, path)
        return 0

    cdef inline int name_once(self, uint32_t name_class, uint64_t id_) except -1:
        if self.sent_names.find(id_) == NULL:
            text = self.rules.names.get(id_)
            if text is not None:
                self.out.add_name(name_class, id_, text)
            self.sent_names.put(id_, 1)
        return 0


cdef int learn_name(dict names, const RecordHeader* record, LogCursor cursor) except -1:
    """Note the text of a name record. Raises LogDamaged."""
    if not name_record_fits(record):
        raise LogDamaged(cursor.file.path, cursor.position - cursor.file.start_position, "a name record is malformed")
    name_class, name_id, text = name_of_record(record)
    if name_class != NAME_INSTANCE:
        names[name_id] = text
    return 0


def learn_names_before(LogFile file not None, uint64_t last_name_offset, dict names not None):
    """Note the names of a file, so that a flow may begin in its middle: {name id: text}.

    last_name_offset: file offset of the last name record to note, as the index of the file has it; 0: there is none.
    Raises LogDamaged, LogUnreadable.
    """
    cdef const RecordHeader* record
    cdef uint64_t offset = last_name_offset
    while offset:
        record = file.chained(offset, KIND_NAME)
        name_class, name_id, text = name_of_record(record)
        if name_class != NAME_INSTANCE:
            names[name_id] = text
        offset = (<const uint64_t*>record_payload(record))[0]


def find_start(directory, uint64_t first_number, uint64_t last_number, uint64_t txid, uint64_t covered_txid=0):
    """Where a source begins to read: (number of the journal, gap).

    txid: the last transaction id that the sink has; 0: it has none, or that is not known. The records behind it begin
    in that journal. covered_txid: up to there, the sink has acknowledged what goes to it. gap: (first, last)
    transaction ids whose journals are gone, without those that are covered, else None. The journals from the first
    number to the last one must be there. Raises LogRemoved, LogMissing, LogDamaged.
    """
    cdef uint64_t low = first_number
    cdef uint64_t high = last_number
    cdef uint64_t middle
    cdef uint64_t first_txid
    while low < high:
        middle = (low + high + 1) // 2
        if first_txid_of(directory, middle) <= txid + 1:
            low = middle
        else:
            high = middle - 1
    first_txid = first_txid_of(directory, low)
    covered_txid = max(txid, covered_txid)
    # The first journal of a log has number 0: nothing is missing before it, whatever its ids are.
    if first_txid > covered_txid + 1 and (txid or low):
        return low, (covered_txid + 1, first_txid - 1)
    return low, None


cdef uint64_t first_txid_of(directory, uint64_t number) except? 0:
    file = directory.file(number)
    return read_file_header(file.read(0, FILE_HEADER_BYTES), file.path)[3]
