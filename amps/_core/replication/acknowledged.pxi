# Acknowledgements of a source flow: the watermark of the destination, and what its pending table says.
#
# The sink states a set of transaction ids (txids.pxi). The watermark is the first record that goes to the destination
# and is not in the set. But a publisher must not wait for a record of another publisher. So, if there are exceptions, a
# *release* finds the publishers of the records that are excepted. All others have nothing pending before the end of the
# set, and their entries in the table say so afterwards.
#
# A release reads the log from the watermark to the end of the set, in steps. One that is under way is finished before a
# newer set counts: acknowledged records stay acknowledged, so its result stays true. A next release continues where the
# last one ended, if the exceptions before that place are the same: this is so while an instance behind the sink is
# stopped and the exceptions only grow.
#
# Invariant: an entry of the table begins at or before the first record of its publisher that is not acknowledged.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.shm.memory cimport PendingEntry
from amps._core.shm.platform cimport load_relaxed, store_release


cdef enum:
    SENT_PLACES_MAX = 256          # more than a window has


@cython.final
cdef class SentPlace:
    """A place up to which the log was sent."""

    cdef uint64_t txid             # of the last record that was sent before it
    cdef uint64_t position
    cdef LogFile file              # stays open, with the topics before the place


cdef class Release:
    """A search for the publishers of excepted records."""

    cdef LogCursor cursor          # behind the last record that was examined
    cdef TxidSet acks              # the set that it follows
    cdef uint32_t at               # number of the first exception that does not end before the cursor
    cdef NumberMap firsts          # publisher id -> log position of its first record that is excepted
    cdef bint finished


cdef inline bint holds(SourceFlow self, uint64_t txid) noexcept:
    """Whether the record with that transaction id is acknowledged, if it goes there."""
    return txid <= self.cleared_txid or self.acks.holds_all(txid, txid)


cdef bint take_acks(SourceFlow self, TxidSet acks) except -1:
    """Count an acknowledgement. True: it says more than the last one."""
    if acks.through < self.acks.through:
        # A restarted sink no longer knows what it dropped as duplicates. It may hold more of the rest than before.
        acks = self.acks.joined(acks)
    if acks.is_equal(self.acks):
        return False
    self.acks = acks
    clear_sent(self)
    return True


cdef int note_sent(SourceFlow self, LogCursor cursor) except -1:
    """Note how far the log was sent. Once that is acknowledged, nobody need read these records again."""
    cdef SentPlace place
    if self.sent_places:
        place = <SentPlace>self.sent_places[len(self.sent_places) - 1]
        if place.position == cursor.position:
            return 0
        if place.txid == self.sent_txid or len(self.sent_places) == SENT_PLACES_MAX:
            self.sent_places.pop()
    place = SentPlace()
    place.txid = self.sent_txid
    place.position = cursor.position
    place.file = cursor.file
    self.sent_places.append(place)
    return 0


cdef int clear_sent(SourceFlow self) except -1:
    """Clear the places before which everything sent is acknowledged.

    Count what was passed over behind the last record that the sink has taken: it has that from elsewhere, durably.

    Such a record would be a duplicate there, which waits for nothing (replication.md §24.7). If it waited for the
    exceptions, instances could wait for each other in a circle.
    """
    cdef SentPlace place
    if self.connected and self.acks.through >= self.sent_txid and self.passed_txid > self.acks.through:
        self.acks = self.acks.with_through(self.passed_txid)
    if self.acks.lowest_missing() - 1 > self.cleared_txid:
        self.cleared_txid = self.acks.lowest_missing() - 1
    while self.sent_places:
        place = <SentPlace>self.sent_places[0]
        if place.txid >= self.acks.lowest_missing():
            break
        self.sent_places.popleft()
        if place.position > self.cleared_position:
            self.cleared_position = place.position
            self.cleared_file = place.file
    return 0


cdef bint follow_unacked(SourceFlow self, uint64_t bytes_max) except -1:
    """Move the watermark to the first record that is not acknowledged. True: it is there."""
    cdef const RecordHeader* record
    cdef LogCursor cursor = self.unacked
    cdef uint64_t began
    cdef uint64_t begin
    if cursor is None:
        self.cleared_file = None
        return True
    began = cursor.position
    skip_sent(self, cursor)
    if not skip_acknowledged(self, cursor):
        self.settled += 1
        return True
    begin = cursor.position
    begin_reading(cursor)
    while cursor.position - begin < bytes_max:
        record = next_record(cursor, self.scanning.position)
        if record == NULL:
            self.unacked = None
            self.oldest_pending_time_ns = 0
            break
        if (
            record.position >= self.cleared_position and not holds(self, record.txid)
            and self.rules.goes(record, cursor)
        ):
            self.oldest_pending_time_ns = record.timestamp_ns
            break
        self.acked_time_ns = record.timestamp_ns
        skip_record(cursor, record)
    else:
        return False
    if self.unacked is None or cursor.position != began:
        self.settled += 1
    return True


cdef int skip_sent(SourceFlow self, LogCursor cursor) except -1:
    """Move the cursor `unacked` to `cleared_position`, if records were sent up to there."""
    cdef LogFile file = self.cleared_file
    if file is None:
        return 0
    self.cleared_file = None
    if cursor.position < self.cleared_position:
        if cursor.file is not file:
            cursor.use_file(file.number)
        cursor.position = self.cleared_position
        self.acked_time_ns = 0
    return 0


cdef bint skip_acknowledged(SourceFlow self, LogCursor cursor) except -1:
    """Move the cursor `unacked` over what the marks show as acknowledged. False: nothing before the scan is pending."""
    cdef Marks marks = self.marks
    cdef Mark* mark
    if marks.file is None or max(cursor.position, self.cleared_position) < marks.complete_from:
        # There may be pending records before the marks.
        return True
    mark = marks.oldest(self.acks.lowest_missing(), self.cleared_position)
    if mark == NULL:
        self.unacked = None
        self.oldest_pending_time_ns = 0
        self.acked_time_ns = self.newest_time_ns
        return False
    if mark.position > cursor.position:
        if cursor.file is not marks.file:
            cursor.use_file(marks.file.number)
        cursor.position = mark.position
        self.oldest_pending_time_ns = mark.first_time_ns
        self.acked_time_ns = mark.time_before_ns
    return True


cdef bint follow_exceptions(SourceFlow self, uint64_t bytes_max) except -1:
    """Tell the pending table which publishers have nothing pending any more. True: it is up to date."""
    cdef Release release = self.release
    if self.table is None or self.unacked is None or self.acks.count == 0:
        self.release = None
        return True
    if release is None or (release.finished and not release.acks.is_equal(self.acks)):
        release = self.release = next_release(self, release)
    if release.finished:
        return True
    if not search(self, release, bytes_max):
        return False
    release.finished = True
    settle(self.table, release)
    self.settled += 1
    return release.acks.is_equal(self.acks)


cdef Release next_release(SourceFlow self, Release last):
    """The search for the newest set, which uses the result of the last one if it still holds."""
    cdef Release made = Release()
    made.acks = self.acks
    made.finished = False
    if last is not None and last.acks.begins_as(self.acks, last.acks.through):
        made.cursor = last.cursor
        made.firsts = last.firsts
        made.at = self.acks.range_at(last.acks.through + 1)
        return made
    made.cursor = self.copy_of(self.unacked, False)
    made.cursor.position = self.unacked.position
    made.firsts = NumberMap()
    made.at = 0
    return made


cdef bint search(SourceFlow self, Release release, uint64_t bytes_max) except -1:
    """Move a release forward. True: it has reached the end of its set."""
    cdef const RecordHeader* record
    cdef LogCursor cursor = release.cursor
    cdef TxidSet acks = release.acks
    cdef uint64_t begin = cursor.position
    begin_reading(cursor)
    while cursor.position - begin < bytes_max:
        record = next_record(cursor, self.scanning.position)
        if record == NULL or record.txid > acks.through:
            return True
        while release.at < acks.count and acks.ranges[release.at].last < record.txid:
            release.at += 1
        if release.at < acks.count and acks.ranges[release.at].first <= record.txid:
            if release.firsts.find(record.publisher_id) == NULL and self.rules.goes(record, cursor):
                release.firsts.put(record.publisher_id, record.position)
        skip_record(cursor, record)
    return False


cdef int settle(PendingTable table, Release release) except -1:
    """Raise the beginnings of all entries of a pending table as far as a finished release allows."""
    cdef PendingEntry* entry
    cdef MapEntry* found
    cdef uint64_t at
    cdef uint64_t first
    cdef uint64_t publisher
    for at in range(table.capacity):
        entry = &table.entries[at]
        publisher = load_relaxed(&entry.publisher_id)
        if publisher:
            found = release.firsts.find(publisher)
            first = release.cursor.position if found == NULL else found.value
            if first > entry.first_position:
                # A reader sees either the old beginning or the new one; both are true.
                store_release(&entry.first_position, first)
    return 0
