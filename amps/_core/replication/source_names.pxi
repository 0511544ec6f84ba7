# What the source of a link has named: the topics of its current journal, clients and paths.
#
# Name ids are hashes, the same everywhere. A text is kept until it is declared to the core, before the first record
# that uses it. Paths get one more line here, that of the source, and so another id.
#
# Invariant: an id is known only if its text was given and fits it.

from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from amps._core.journal.record cimport NAME_BYTES_MAX
from amps._core.values.value cimport hash_bytes
from amps._core.wire.topics cimport TopicTable

cdef enum:
    PATHS_MAX = 65536              # of one connection

UPSTREAM_NAMES = b"amps-server: from "
"""How the name of an upstream begins; name class 2."""


@cython.final
cdef class SourceNames:
    """The names that one source has given. hop: its line in a path."""

    cdef TopicTable topics
    cdef bytes hop
    cdef object declare_name
    cdef set declared_names
    cdef uint64_t journal
    cdef NumberMap topic_numbers   # topic id of the source + 1 -> number of the topic here + 1
    cdef NumberMap path_ids        # path id at the source -> path id here
    cdef dict path_texts           # path id here -> text, until it is declared
    cdef dict client_texts         # name id of a client -> text, until it is declared
    cdef uint64_t direct_path      # path id here of records that were published at the source

    def __init__(self, TopicTable topics, bytes hop, declare_name, set declared_names):
        self.topics = topics
        self.hop = hop
        self.declare_name = declare_name
        self.declared_names = declared_names
        self.journal = 0
        self.topic_numbers = NumberMap()
        self.path_ids = NumberMap()
        self.path_texts = {}
        self.client_texts = {}
        self.direct_path = self.note_path(hop)

    cdef int learn(self, const uint8_t* data, uint64_t length) except -1:
        """Take a NAMES frame. Raises StreamError."""
        cdef NameEntry entry
        cdef uint64_t at = 8
        cdef uint64_t journal
        cdef bytes text
        if length < 8:
            raise StreamError(f"a frame of names has {length} bytes")
        memcpy(&journal, data, 8)
        if journal != self.journal:
            self.journal = journal
            self.topic_numbers.clear()
        while at < length:
            if length - at < sizeof(NameEntry):
                raise StreamError("a frame of names ends within an entry")
            memcpy(&entry, data + at, sizeof(NameEntry))
            at += sizeof(NameEntry)
            if entry.length > NAME_BYTES_MAX or align8(entry.length) > length - at:
                raise StreamError(f"a name says it has {entry.length} bytes")
            text = (<const char*>data + at)[:entry.length]
            at += align8(entry.length)
            if entry.kind == NAME_TOPIC:
                self.learn_topic(entry.id, text)
            elif entry.id != hash_bytes(<const uint8_t*><const char*>text, entry.length, 0):
                raise StreamError("a name id is not the hash of its text")
            elif entry.kind == NAME_CLIENT:
                if text.startswith(UPSTREAM_NAMES):
                    raise StreamError("a publisher has the name of an upstream")
                if entry.id not in self.declared_names:
                    self.client_texts[entry.id] = text
            elif entry.kind == NAME_PATH:
                if self.path_ids.count >= PATHS_MAX:
                    raise StreamError(f"more than {PATHS_MAX} paths")
                self.path_ids.put(entry.id, self.note_path(text + b"\n" + self.hop))
            else:
                raise StreamError(f"a name of class {entry.kind}")
        return 0

    cdef int learn_topic(self, uint64_t topic_id, bytes text) except -1:
        message_type, tab, name = text.partition(b"\t")
        if not tab or topic_id >= <uint64_t>1 << 32:
            raise StreamError("a topic without its message type")
        try:
            entry = self.topics.entry(name.decode("utf-8", "surrogatepass"), message_type.decode())
        except UnicodeDecodeError:
            raise StreamError("a topic that is not UTF-8") from None
        self.topic_numbers.put(topic_id + 1, <uint64_t>(<TopicEntry>entry).number + 1)
        return 0

    cdef uint64_t note_path(self, bytes text) except 0:
        """The id here of a path."""
        cdef uint64_t path = hash_bytes(<const uint8_t*><const char*>text, PyBytes_GET_SIZE(text), 0)
        if path not in self.declared_names:
            self.path_texts[path] = text
        return path

    cdef bint declare(self, uint32_t name_class, uint64_t name_id, dict texts) except -1:
        """Declare a name to the core before the first record that uses it. False: there is no room."""
        text = texts.get(name_id)
        if text is None:
            return True
        if name_id not in self.declared_names:
            if not self.declare_name(name_class, name_id, text):
                return False
            self.declared_names.add(name_id)
        del texts[name_id]
        return True

    cdef bint declare_all(self, const RecordHeader* record) except -1:
        """Declare the names that a record uses. False: there is no room."""
        if self.client_texts and not self.declare(NAME_CLIENT, record_client_id(record), self.client_texts):
            return False
        return not self.path_texts or self.declare(NAME_PATH, self.path_of(record), self.path_texts)

    cdef inline TopicEntry entry_of(self, const RecordHeader* record):
        """The topic here of a checked record."""
        return <TopicEntry>self.topics.entries[self.topic_numbers.find(<uint64_t>record.topic_id + 1).value - 1]

    cdef inline uint64_t path_of(self, const RecordHeader* record) noexcept:
        """The path id here of a checked record."""
        cdef uint64_t path = extension_word(record, EXTENSION_PATH, 0) if record.extension_length else 0
        return self.path_ids.find(path).value if path else self.direct_path
