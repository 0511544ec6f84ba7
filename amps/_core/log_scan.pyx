"""Going through a whole file of a log without trusting it: what recovery, verifying and compressing do.

Unlike a cursor (log_reader.pyx) a scan stops at what is not intact instead of raising, and tells what it has found up
to there and beyond. It can build the file's index on its way.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.bookmark_index cimport IndexBuilder
from amps._core.log_reader cimport LogFile, topic_of_record, topic_record_fits
from amps._core.record cimport (
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NONE,
    KIND_TOPIC,
    RECORD_HEADER_BYTES,
    RecordHeader,
    align8,
    record_checksum,
    record_parts_fit,
)

cdef enum:
    PROGRESS_BYTES = 1 << 26
    ZEROS_BYTES = 1 << 18


class ScanResult:
    """What a scan of one file found.

    end_offset: file offset after the last intact record. finished: the file ended with an end-of-file record.
    damaged: intact records are followed by something that is neither a record nor zeros. durable_position: the
    highest watermark any intact record carries, those beyond the damage included. last_txid, last_bookmark: of the
    last message. record_count. valid_after: file offset of the first intact record beyond the damage, 0 = none.
    topics: [(topic, message type)] by topic id.
    """

    __slots__ = (
        "damaged", "durable_position", "end_offset", "finished", "last_bookmark", "last_txid", "record_count", "topics",
        "valid_after",
    )


def scan_file(source, uint64_t start_position, IndexBuilder index=None, progress=None):
    """Read a file from its first record to its last intact one, checking everything; optionally build its index.

    source: a LogFile, or the whole content of a file as a buffer. `progress(offset)` is called about every 64 MiB.
    Raises LogDamaged where a compressed file cannot be decompressed.
    """
    cdef const unsigned char[::1] view
    cdef LogFile file = None
    cdef uint64_t size
    cdef const uint8_t* data
    cdef uint64_t offset = FILE_HEADER_BYTES
    cdef uint64_t ready = 0        # up to where a compressed file is in memory
    cdef uint64_t end
    cdef uint64_t report_at = PROGRESS_BYTES
    cdef const RecordHeader* record
    cdef uint64_t durable = 0
    cdef uint64_t last_txid = 0
    cdef uint64_t publisher = 0
    cdef uint64_t sequence = 0
    cdef uint64_t count = 0
    if isinstance(source, LogFile):
        file = source
        size = file.size
        data = file.data
        if file.frames is None:
            file = None  # everything is in memory
    else:
        view = source
        size = <uint64_t>view.shape[0]
        data = &view[0]
    result = ScanResult()
    result.finished = False
    result.damaged = False
    result.valid_after = 0
    result.topics = []
    while offset + RECORD_HEADER_BYTES <= size:
        record = <const RecordHeader*>(data + offset)
        if file is not None and (ready < offset + RECORD_HEADER_BYTES or ready - offset < record.length):
            ready = file.ready_at(offset)
        if not record_intact(record, start_position + offset, size - offset):
            break
        if record.kind == KIND_TOPIC:
            # Topic ids are dense. What breaks that was not written by this program, whatever its checksum says.
            if record.topic_id != <uint32_t>len(result.topics) or not topic_record_fits(record):
                break
            message_type, topic = topic_of_record(record)
            result.topics.append((topic, message_type))
        if record.durable_position > durable:
            durable = record.durable_position
        last_txid = max(last_txid, record.txid)
        if record.publisher_id:
            publisher = record.publisher_id
            sequence = record.sequence
        count += 1
        if index is not None and record.kind != KIND_END_OF_FILE:
            index.add(record, offset)
        offset += align8(record.length)
        if record.kind == KIND_END_OF_FILE:
            result.finished = True
            break
        if offset >= report_at:
            report_at = offset + PROGRESS_BYTES
            if progress is not None:
                progress(offset)
    result.end_offset = offset
    result.record_count = count
    if not result.finished:
        while offset < size:
            end = min(size, offset + PROGRESS_BYTES)
            if file is not None:
                end = min(end, offset + ZEROS_BYTES)
                file.need(offset, end - offset)
            while offset < end and data[offset] == 0:
                offset += 1
            if offset < end:
                break
            if offset >= report_at:
                report_at = offset + PROGRESS_BYTES
                if progress is not None:
                    progress(offset)
        if offset < size:
            result.damaged = True
            offset = result.end_offset
            # Records are aligned to 8 bytes; look for what lies intact beyond the damage.
            while offset + RECORD_HEADER_BYTES <= size:
                record = <const RecordHeader*>(data + offset) if file is None else file.record_at(offset)
                if record_intact(record, start_position + offset, size - offset):
                    if not result.valid_after:
                        result.valid_after = offset
                    if record.durable_position > durable:
                        durable = record.durable_position
                    offset += align8(record.length)
                else:
                    offset += 8
    result.durable_position = durable
    result.last_txid = last_txid
    result.last_bookmark = (publisher, sequence)
    return result


cdef inline bint record_intact(const RecordHeader* record, uint64_t position, uint64_t room) noexcept nogil:
    return (
        record.position == position
        and record.kind != KIND_NONE
        and record_parts_fit(record)
        and align8(record.length) <= room
        and record.checksum == record_checksum(record)
    )


def check_records(LogFile file, uint64_t offset, uint64_t bytes_max):
    """Check the records of a file that is not compressed, from that file offset on, about `bytes_max` bytes of them.

    Returns (file offset after the last intact one, whether that was the end-of-file record). Other threads run
    meanwhile.
    """
    cdef const RecordHeader* record
    cdef uint64_t size = file.size
    cdef uint64_t end = min(size, offset + bytes_max)
    cdef bint finished = False
    if file.frames is not None:
        raise ValueError("the file is compressed")
    with nogil:
        while offset < end and size - offset >= RECORD_HEADER_BYTES:
            record = <const RecordHeader*>(file.data + offset)
            if not record_intact(record, file.start_position + offset, size - offset):
                break
            offset += align8(record.length)
            if record.kind == KIND_END_OF_FILE:
                finished = True
                break
    return offset, finished


def intact_record(source, uint64_t start_position, uint64_t offset):
    """(kind, transaction id) of the record at a file offset, None if no intact one is there.

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
