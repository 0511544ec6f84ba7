# Records of a journal by their log position.

from libc.stdint cimport uint64_t

from amps._core.journal.reader import LogDamaged, LogRemoved
from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader


@cython.final
cdef class JournalPlaces:
    """Reads single records at log positions, and waits for the disk if it must. The files stay open until `forget`."""

    def __init__(self, directory, numbers):
        """directory: a LogDirectory. numbers(): (number of the first journal, number of the journal in use)."""
        self.directory = directory
        self.numbers = numbers
        self.files = []
        self.file = None

    cdef const RecordHeader* at(self, uint64_t position) except NULL:
        """The record at a log position. Raises LogDamaged, LogRemoved."""
        cdef LogFile file = self.file
        cdef const RecordHeader* record
        cdef uint64_t offset
        if file is None or not file.start_position <= position < file.start_position + file.size:
            file = self.file = self.file_at(position)
        offset = position - file.start_position
        if file.frames is not None:
            file.need(offset, RECORD_HEADER_BYTES)
            record = <const RecordHeader*>(file.data + offset)
            file.need(offset, min(<uint64_t>record.length, file.size - offset))
        record = <const RecordHeader*>(file.data + offset)
        if record.position != position or record.length > file.size - offset or not record_parts_fit(record):
            raise LogDamaged(file.path, offset, "no record where the state of a SOW topic expects one")
        return record

    cdef LogFile file_at(self, uint64_t position):
        cdef LogFile file
        for file in self.files:
            if file.start_position <= position < file.start_position + file.size:
                return file
        first, last = self.numbers()
        file = self.directory.file(self.directory.number_at(position, first, last))
        if not file.start_position <= position < file.start_position + file.size:
            raise LogRemoved(f"log position {position} is in no journal")
        self.files.append(file)
        return file

    def forget(self, before_number):
        """Close the journals with smaller numbers."""
        self.files = [file for file in self.files if file.number >= before_number]
        if self.file is not None and self.file.number < before_number:
            self.file = None
