# Scanning a whole file of a log whose content is not trusted, for recovery, verification and compression.
#
# Unlike a cursor (journal/cursor.pxi), a scan does not raise at a record that is not intact. It stops there, and
# reports the records before the damage and the intact records beyond it. It can build the file's index on its way.
#
# The records of a transaction's group count as intact only together: a group that is cut off or damaged ends the scan
# before its transaction record.

import mmap
import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from amps._core.journal.reader cimport LogFile, name_of_record, name_record_fits, topic_of_record, topic_record_fits
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    KIND_TRANSACTION,
    KIND_TRANSACTION_REFUSED,
    RECORD_HEADER_BYTES,
    RecordHeader,
    TransactionGroup,
    align8,
    record_plausible,
    record_sound,
    refused_transaction,
    transaction_group,
)

cdef enum:
    PROGRESS_BYTES = 1 << 24
    COMPRESSED_PROGRESS_BYTES = 1 << 20
    ZERO_BLOCK_BYTES = 4096
    DIRECT_BYTES = 1 << 20         # read at once past the page cache

cdef uint8_t[ZERO_BLOCK_BYTES] ZEROS


class ScanResult:
    """The result of a scan of one file.

    end_offset: file offset after the last intact record before any damage. finished: the file ended with an
    end-of-file record. damaged: the intact records are followed by bytes that are neither a record nor zeros.
    durable_position: the highest durable watermark in any intact record, including the records beyond the damage.
    last_txid: the highest transaction id. last_bookmark: the bookmark of the last message. record_count: the number of
    intact records before any damage. valid_after: file offset of the first intact record beyond the damage, 0 = none.
    topics: [(topic, message type)] by topic id. name_ids: the set of name ids with name records in the file.
    refused: [(publisher id, first sequence, last sequence)] of the refused transactions. last_refused_offset: file
    offset of the last of their records, 0 = none.
    """

    __slots__ = (
        "damaged", "durable_position", "end_offset", "finished", "last_bookmark", "last_refused_offset",
        "last_txid", "name_ids", "record_count", "refused", "topics", "valid_after",
    )


def scan_file(source, uint64_t start_position, IndexBuilder index=None, progress=None):
    """Read and check a file from its first record to its last intact one, and optionally build its index.

    source: a LogFile, or the whole content of a file as a buffer. `progress(offset)` is called about every 16 MiB, and
    every MiB of a compressed file, with rising offsets; an exception from it ends the scan. Unless an index is built,
    other threads run meanwhile. Raises LogDamaged where a compressed file cannot be decompressed, LogUnreadable.
    """
    cdef const unsigned char[::1] view
    cdef LogFile file = None
    cdef uint64_t size
    cdef const uint8_t* data
    cdef uint64_t step = PROGRESS_BYTES
    cdef uint64_t report_at
    cdef uint64_t end
    cdef uint64_t ready            # file offset up to which the content is in memory
    cdef const RecordHeader* record
    cdef Scan scan
    cdef Found found
    if isinstance(source, LogFile):
        file = source
        size = file.size
        data = file.data
        if file.frames is not None:
            step = COMPRESSED_PROGRESS_BYTES
    else:
        view = source
        size = <uint64_t>view.shape[0]
        data = &view[0]
    ready = size if file is None else 0
    result = ScanResult()
    result.finished = False
    result.damaged = False
    result.valid_after = 0
    result.topics = []
    result.name_ids = set()
    result.refused = []
    result.last_refused_offset = 0
    memset(&scan, 0, sizeof(Scan))
    scan.offset = FILE_HEADER_BYTES
    report_at = step
    while True:
        # An index takes the records one by one.
        end = report_at if index is None else scan.offset + 1
        with nogil:
            found = scan_records(&scan, data, start_position, size, ready, end)
        if found == FOUND_MISSING:
            ready = file.ready_at(scan.offset)
            continue
        if found == FOUND_DAMAGE:
            break
        record = <const RecordHeader*>(data + scan.record_offset)
        if found == FOUND_TOPIC:
            # Topic ids are dense. A topic record that breaks this rule was not written by this program, even if its
            # checksum is right.
            if record.topic_id != <uint32_t>len(result.topics) or not topic_record_fits(record):
                break
            message_type, topic = topic_of_record(record)
            result.topics.append((topic, message_type))
            take_record(&scan, record)
        if found == FOUND_NAME:
            if not name_record_fits(record):
                break
            result.name_ids.add(name_of_record(record)[1])
            take_record(&scan, record)
        if found == FOUND_GROUP:
            if not group_is_whole(record, start_position, size, scan.record_offset, data, file):
                break
            if file is not None and file.frames is not None:
                # The check may have released the frame of the transaction record.
                ready = file.ready_at(scan.record_offset)
            take_record(&scan, record)
        if found == FOUND_REFUSED:
            if refused_transaction(record) == NULL:
                break
            result.refused.append((record.publisher_id, refused_transaction(record).sequence, record.sequence))
            result.last_refused_offset = scan.record_offset
            take_record(&scan, record)
        if found == FOUND_END_OF_FILE:
            result.finished = True
            break
        if index is not None:
            index.add(record, scan.record_offset)
        if scan.offset >= report_at:
            report_at = scan.offset + step
            if progress is not None:
                progress(scan.offset)
    result.end_offset = scan.offset
    result.record_count = scan.count
    if not result.finished:
        scan_beyond(&scan, result, file, data, start_position, size, progress)
    result.durable_position = scan.durable_position
    result.last_txid = scan.last_txid
    result.last_bookmark = (scan.publisher_id, scan.sequence)
    return result


cdef int scan_beyond(
    Scan* scan, result, LogFile file, const uint8_t* data, uint64_t start_position, uint64_t size, progress
) except -1:
    """Scan the bytes behind the last intact record: zeros, or damage with intact records behind it."""
    cdef uint64_t step = PROGRESS_BYTES if file is None or file.frames is None else COMPRESSED_PROGRESS_BYTES
    cdef uint64_t ready = size if file is None else 0
    cdef uint64_t end
    cdef Found found = FOUND_RECORDS
    if file is not None and file.frames is None:
        pass_zeros(scan, file, size, progress)
    while scan.offset < size:
        end = min(size, scan.offset + step)
        if file is not None:
            file.need(scan.offset, end - scan.offset)
        with nogil:
            scan.offset += zeros_at(data + scan.offset, end - scan.offset)
        if scan.offset < end:
            break
        if progress is not None:
            progress(scan.offset)
    if scan.offset >= size:
        return 0
    result.damaged = True
    # Records are aligned to 8 bytes and begin with their length, which is not zero.
    scan.offset = scan.offset // 8 * 8
    scan.record_offset = 0
    while found != FOUND_DAMAGE:
        end = scan.offset + step
        with nogil:
            found = search_records(scan, data, start_position, size, ready, end)
        if found == FOUND_MISSING:
            ready = file.ready_at(scan.offset)
        elif progress is not None:
            progress(scan.offset)
    result.valid_after = scan.record_offset
    return 0


cdef int pass_zeros(Scan* scan, LogFile file, uint64_t size, progress) except -1:
    """Move over the zeros behind the records as far as the file can be read past the page cache.

    The rest of the newest journal is up to its whole size of zeros. To map that would cost more than to read all
    records of a small log, and would take the page cache from files that are read.
    """
    cdef uint64_t at = (scan.offset + ZERO_BLOCK_BYTES - 1) // ZERO_BLOCK_BYTES * ZERO_BLOCK_BYTES
    cdef const unsigned char[::1] view
    cdef uint64_t count
    cdef uint64_t zeros = 0
    if at >= size or zeros_at(file.data + scan.offset, at - scan.offset) < at - scan.offset:
        return 0
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return 0  # no such way on this file system
    try:
        # Not closed here: that would fail while the view is there, also behind a failed read. Both end with this call.
        room = mmap.mmap(-1, DIRECT_BYTES)
        view = room
        while at < size and zeros == 0:
            count = os.preadv(descriptor, [room], at)
            if count == 0:
                break
            with nogil:
                zeros = count - zeros_at(&view[0], count)
            at += count - zeros
            scan.offset = min(at, size)
            if progress is not None:
                progress(scan.offset)
    except OSError:
        return 0  # what cannot be read so is mapped, as it would be without this
    finally:
        os.close(descriptor)
    return 0


# The progress of a scan, and the facts about the records before its offset.
cdef struct Scan:
    uint64_t offset                # file offset of the next record
    uint64_t record_offset         # offset of the last record checked; beyond damage, of the first intact record
    uint64_t durable_position
    uint64_t last_txid
    uint64_t publisher_id
    uint64_t sequence
    uint64_t count


cdef enum Found:
    FOUND_RECORDS                  # only records before `end`
    FOUND_TOPIC                    # a topic record, which the caller takes or rejects
    FOUND_NAME                     # a name record, which the caller takes or rejects
    FOUND_GROUP                    # a transaction record, which the caller takes if its group is whole
    FOUND_REFUSED                  # the record of a refused transaction, which the caller takes or rejects
    FOUND_END_OF_FILE
    FOUND_DAMAGE                   # no intact record
    FOUND_MISSING                  # a record that is not in memory as a whole


cdef Found scan_records(
    Scan* scan, const uint8_t* data, uint64_t start_position, uint64_t size, uint64_t ready, uint64_t end
) noexcept nogil:
    """Take the records that begin before `end`, up to the first record that the caller must examine."""
    cdef const RecordHeader* record
    cdef uint64_t room
    while scan.offset < end:
        if scan.offset > size or size - scan.offset < RECORD_HEADER_BYTES:
            return FOUND_DAMAGE
        room = size - scan.offset
        if ready < scan.offset + RECORD_HEADER_BYTES:
            return FOUND_MISSING
        record = <const RecordHeader*>(data + scan.offset)
        scan.record_offset = scan.offset
        if not record_plausible(record, start_position + scan.offset, room):
            return FOUND_DAMAGE
        if ready < scan.offset + record.length:
            return FOUND_MISSING
        if not record_sound(record):
            return FOUND_DAMAGE
        if record.kind == KIND_TOPIC:
            return FOUND_TOPIC
        if record.kind == KIND_NAME:
            return FOUND_NAME
        if record.kind == KIND_TRANSACTION:
            return FOUND_GROUP
        if record.kind == KIND_TRANSACTION_REFUSED:
            return FOUND_REFUSED
        take_record(scan, record)
        if record.kind == KIND_END_OF_FILE:
            return FOUND_END_OF_FILE
    return FOUND_RECORDS


cdef Found search_records(
    Scan* scan, const uint8_t* data, uint64_t start_position, uint64_t size, uint64_t ready, uint64_t end
) noexcept nogil:
    """Search for intact records up to `end`, beyond damage. FOUND_DAMAGE: the end of the file is reached."""
    cdef const RecordHeader* record
    while scan.offset < end:
        if scan.offset > size or size - scan.offset < RECORD_HEADER_BYTES:
            return FOUND_DAMAGE
        if ready < scan.offset + RECORD_HEADER_BYTES:
            return FOUND_MISSING
        record = <const RecordHeader*>(data + scan.offset)
        if record_plausible(record, start_position + scan.offset, size - scan.offset):
            if ready < scan.offset + record.length:
                return FOUND_MISSING
            if record_sound(record):
                if not scan.record_offset:
                    scan.record_offset = scan.offset
                scan.durable_position = max(scan.durable_position, record.durable_position)
                scan.offset += align8(record.length)
                continue
        scan.offset += 8
    return FOUND_RECORDS


cdef bint group_is_whole(
    const RecordHeader* transaction, uint64_t start_position, uint64_t size, uint64_t offset, const uint8_t* data,
    LogFile file,
) except -1:
    """True if all records of the group behind a sound transaction record, at a file offset, are intact."""
    cdef const TransactionGroup* group = transaction_group(transaction)
    cdef const RecordHeader* record
    cdef uint64_t at = offset + align8(transaction.length)
    cdef uint64_t end
    cdef uint32_t left
    if group == NULL or at > size or group.bytes > size - at:
        return False
    end = at + group.bytes
    left = group.count
    if file is not None and file.frames is None:
        file.need(at, group.bytes)
    while left:
        if end - at < RECORD_HEADER_BYTES:
            return False
        if file is None or file.frames is None:
            record = <const RecordHeader*>(data + at)
        else:
            record = file.record_at(at)
        if not record_plausible(record, start_position + at, end - at) or not record_sound(record):
            return False
        at += align8(record.length)
        left -= 1
    return at == end


cdef inline void take_record(Scan* scan, const RecordHeader* record) noexcept nogil:
    scan.durable_position = max(scan.durable_position, record.durable_position)
    scan.last_txid = max(scan.last_txid, record.txid)
    if record.publisher_id:
        scan.publisher_id = record.publisher_id
        scan.sequence = record.sequence
    scan.count += 1
    scan.offset += align8(record.length)


cdef uint64_t zeros_at(const uint8_t* data, uint64_t length) noexcept nogil:
    """The number of zero bytes before the first byte that is not zero."""
    cdef uint64_t offset = 0
    while length - offset >= ZERO_BLOCK_BYTES and memcmp(data + offset, ZEROS, ZERO_BLOCK_BYTES) == 0:
        offset += ZERO_BLOCK_BYTES
    while offset < length and data[offset] == 0:
        offset += 1
    return offset


cdef inline bint record_intact(const RecordHeader* record, uint64_t position, uint64_t room) noexcept nogil:
    return record_plausible(record, position, room) and record_sound(record)


def check_records(LogFile file, uint64_t offset, uint64_t bytes_max):
    """Check about `bytes_max` bytes of records of a file that is not compressed, from a file offset on.

    Returns (file offset after the last intact record, True if that is the end-of-file record). Other threads run
    meanwhile. Raises LogUnreadable.
    """
    cdef uint64_t size = file.size
    cdef uint64_t end = min(size, offset + bytes_max)
    cdef uint64_t ready = 0
    cdef Scan scan
    cdef Found found
    if file.frames is not None:
        raise ValueError("the file is compressed")
    memset(&scan, 0, sizeof(Scan))
    scan.offset = offset
    while True:
        with nogil:
            found = scan_records(&scan, file.data, file.start_position, size, ready, end)
        if found == FOUND_MISSING:
            ready = file.ready_at(scan.offset)
        elif found not in (FOUND_RECORDS, FOUND_END_OF_FILE, FOUND_DAMAGE):
            take_record(&scan, <const RecordHeader*>(file.data + scan.record_offset))
        else:
            return scan.offset, found == FOUND_END_OF_FILE


def intact_record(source, uint64_t start_position, uint64_t offset):
    """(kind, transaction id) of the record at a file offset; None if there is no intact record.

    source: a LogFile, or the whole content of a file as a buffer.
    """
    cdef const unsigned char[::1] view
    cdef uint64_t size
    cdef const RecordHeader* record
    if isinstance(source, LogFile):
        size = (<LogFile>source).size
    else:
        view = source
        size = <uint64_t>view.shape[0]
    if offset > size or size - offset < RECORD_HEADER_BYTES:
        return None
    if isinstance(source, LogFile):
        record = (<LogFile>source).record_at(offset)
    else:
        record = <const RecordHeader*>(&view[0] + offset)
    if not record_intact(record, start_position + offset, size - offset):
        return None
    return record.kind, record.txid
