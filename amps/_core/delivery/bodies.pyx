"""The bodies of messages for receivers that want less than the whole: select lists and differences (sow.md §§17, 18).

Receivers with the same select list share one object, which keeps what it has made of the last message. So a body is
made once per message, however many receivers get it.

A message that cannot be parsed has no fields that a list could select, so its body is empty.
"""

cimport cython
from libc.stdint cimport uint64_t

from amps._core.journal.record cimport RecordHeader, record_payload
from amps._core.values.documents cimport Documents, Selection
from amps._core.values.fields cimport ByteBuffer, FieldSet

include "../shm/layout.pxi"

cdef uint64_t NO_TXID = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class Bodies:

    def __init__(self, Documents documents, Selection selection=None):
        """documents: of the message type; None: it has no operations on fields. selection: None for whole messages."""
        if documents is None and selection is not None:
            raise ValueError("messages of this type have no fields to select")
        self.documents = documents
        self.selection = selection
        self.selected = ByteBuffer()
        self.older = ByteBuffer()
        self.changes = ByteBuffer()
        self.selected_txid = NO_TXID
        self.new_txid = NO_TXID
        self.old_txid = NO_TXID
        self.found = -1

    cdef bint make(self, const RecordHeader* record) except -1:
        """Set the body of a message. False: it cannot be parsed, and the body is empty."""
        self.body = record_payload(record)
        self.length = record.payload_length
        if self.selection is None:
            return True
        if self.selected_txid != record.txid:
            self.selected_txid = NO_TXID
            self.selected.length = 0
            self.readable = self.documents.select(
                record_payload(record), record.payload_length, self.selection, self.selected
            )
            self.selected_txid = record.txid
        self.body = self.selected.data
        self.length = self.selected.length if self.readable else 0
        return self.readable

    cdef int compare(self, const RecordHeader* old, const RecordHeader* new, FieldSet keys) except -2:
        """Set the body to the key fields and what changed. 1: something did; 0: nothing did; -1: there is no difference
        of these messages, and the body is not set. Fields that are not selected do not count.
        """
        if self.documents is None:
            return -1
        if self.new_txid != new.txid or self.old_txid != old.txid:
            self.new_txid = NO_TXID
            self.changes.length = 0
            self.older.length = 0
            self.found = -1
            if self.selection is None:
                self.found = self.documents.difference(
                    record_payload(old), old.payload_length, record_payload(new), new.payload_length, keys, self.changes
                )
            elif self.make(new) and self.documents.select(
                record_payload(old), old.payload_length, self.selection, self.older
            ):
                self.found = self.documents.difference(
                    self.older.data, self.older.length, self.body, self.length, keys, self.changes
                )
            self.new_txid = new.txid
            self.old_txid = old.txid
        if self.found >= 0:
            self.body = self.changes.data
            self.length = self.changes.length
        return self.found
