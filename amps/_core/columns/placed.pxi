# Rows of records at known places of a journal, or in memory: the state of a SOW topic (amps/spark/sow_reading.py).
#
# A record is read where it lies. Its checksum is verified before a row is made.

cdef enum:
    NEAR_BYTES = 32768             # brought into memory with a record: the next ones are often near


cdef class PlacedRecords:
    """Makes rows of single records. See the header of this file."""

    def __cinit__(self):
        self.topics = NULL

    def __init__(self, RecordRows batch not None, topics, publishers):
        """topics: of each (topic, message type, number of the reader of its payload fields), texts as bytes.
        publishers: {name id: name}.
        """
        cdef uint64_t number
        self.batch = batch
        self.texts = list(topics)
        self.topic_count = <uint64_t>len(self.texts)
        self.topics = <TopicState*>realloc(NULL, max(self.topic_count, <uint64_t>1) * sizeof(TopicState))
        if self.topics == NULL:
            raise MemoryError()
        for number in range(self.topic_count):
            topic, message_type, fields = self.texts[number]
            self.topics[number].topic = text_of(topic)
            self.topics[number].message_type = text_of(message_type)
            self.topics[number].known = 1
            self.topics[number].wanted = 1
            self.topics[number].fields = fields
        for name_id, text in publishers.items():
            batch.learn_name(name_id, _shown_name(text))

    def __dealloc__(self):
        free(self.topics)

    def add_from_file(self, LogFile file not None, offsets, topics, txids, uint64_t first):
        """Make rows of the records at file offsets, from index `first` on, until the batch is full. Returns the index
        behind the last one. topics: their numbers. txids: their transaction ids. Raises LogDamaged, LogUnreadable.
        """
        cdef const uint64_t[::1] places = offsets
        cdef const uint32_t[::1] numbers = topics
        cdef const uint64_t[::1] expected = txids
        cdef uint64_t at = first
        cdef uint64_t count = <uint64_t>places.shape[0]
        cdef uint64_t offset
        cdef uint64_t ready = 0        # file offset up to which content is in memory
        cdef uint64_t loaded = 0       # from this one on
        cdef const RecordHeader* record
        if <uint64_t>numbers.shape[0] != count or <uint64_t>expected.shape[0] != count:
            raise ValueError("each offset needs a topic and a transaction id")
        while at < count and not self.batch.is_full():
            offset = places[at]
            if offset > file.size or file.size - offset < RECORD_HEADER_BYTES:
                raise LogDamaged(file.path, offset, "no record where one must be")
            if offset < loaded or offset + RECORD_HEADER_BYTES > ready:
                ready = min(offset + NEAR_BYTES, file.size)
                file.need(offset, ready - offset)
                loaded = offset
            record = <const RecordHeader*>(file.data + offset)
            if record.position != file.start_position + offset or record.length > file.size - offset:
                raise LogDamaged(file.path, offset, "no record where one must be")
            if offset + record.length > ready:
                file.need(offset, record.length)
                ready = offset + record.length
            if not record_plausible(record, file.start_position + offset, file.size - offset) or (
                not record_sound(record) or record.txid != expected[at]
            ):
                raise LogDamaged(file.path, offset, "it does not hold the record that was found there")
            self.put(record, numbers[at])
            at += 1
        return at

    def add_record(self, data, uint32_t topic):
        """Make a row of a sound record in memory. False: the batch is full."""
        cdef const unsigned char[::1] view = data
        if self.batch.is_full():
            return False
        self.put(<const RecordHeader*>&view[0], topic)
        return True

    cdef int put(self, const RecordHeader* record, uint32_t topic) except -1:
        if topic >= self.topic_count:
            raise ValueError("there is no such topic")
        if not self.batch.append(record, shown_kind(record), &self.topics[topic]):
            self.batch.check()
        return 0
