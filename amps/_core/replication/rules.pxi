# The rules of one destination: which records of the log it is to get (replication.md §9).
#
# A record goes to a destination if its topic is chosen, its content matches a filter of the topic if there are filters,
# and its path allows it. The topic is asked for once, and each path once. So most records cost a few array reads.
#
# Deletes, acknowledgements of queue messages, their removals and transfers follow their topic alone: a filter is for
# the content of messages (decision 25.61).

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.expressions.machine cimport EvaluationContext, Filter, FilterSet
from amps._core.journal.reader cimport LogCursor, topic_of
from amps._core.journal.record cimport (
    EXTENSION_PATH,
    KIND_DELTA_PUBLISH,
    KIND_OWNERSHIP_TRANSFER,
    KIND_PUBLISH,
    KIND_TRANSACTION_REFUSED,
    RecordHeader,
    extension_word,
    record_payload,
)
from amps._core.wire.topics cimport TopicEntry, tell_facts

from amps._core.journal.reader import LogDamaged

cdef enum TopicChoice:
    CHOICE_UNKNOWN = 0
    CHOICE_ALL = 1
    CHOICE_NONE = 2
    CHOICE_FILTERED = 3

RESERVED_TOPICS = "/AMPS"


cdef inline bint is_replicated_kind(uint32_t kind) noexcept nogil:
    return KIND_PUBLISH <= kind <= KIND_OWNERSHIP_TRANSFER or kind == KIND_TRANSACTION_REFUSED


@cython.final
cdef class Rules:
    """The rules of one destination, for one instance there.

    choose(topic, message_type): whether the topic goes there, or a pair of the EvaluationContext of the message type
    and filters, one of which must match. passes_group(group): whether messages that came from an instance of that group
    are sent on; None: none are. names: {name id: text} with all paths that records have; it is shared by all cursors of
    the process. peer: name and epoch of the instance there; None: it is not known yet.
    """

    cdef object choose
    cdef object passes_group
    cdef dict names
    cdef readonly tuple peer
    cdef uint8_t* choices          # TopicChoice by topic number
    cdef uint32_t choice_count
    cdef list filters              # FilterSet by topic number, or None
    cdef dict path_passes          # path id -> bool
    cdef uint64_t last_path
    cdef bint last_passes

    def __cinit__(self):
        self.choices = NULL
        self.choice_count = 0

    def __init__(self, choose, passes_group, dict names, tuple peer=None):
        self.choose = choose
        self.passes_group = passes_group
        self.names = names
        self.peer = peer
        self.filters = []
        self.path_passes = {}
        self.last_path = 0
        self.last_passes = False

    def __dealloc__(self):
        free(self.choices)

    cdef bint goes(self, const RecordHeader* record, LogCursor cursor) except -1:
        """Whether a record goes to the destination. Raises LogDamaged if the log lacks its topic or its path."""
        cdef TopicEntry entry
        cdef uint8_t choice
        cdef uint64_t path
        if record.publisher_id == 0 or not is_replicated_kind(record.kind):
            return False
        entry = <TopicEntry?>known_topic(cursor, record)
        choice = self.choices[entry.number] if entry.number < self.choice_count else <uint8_t>CHOICE_UNKNOWN
        if choice == CHOICE_UNKNOWN:
            choice = self.choose_topic(entry)
        if choice == CHOICE_NONE:
            return False
        if record.extension_length:
            path = extension_word(record, EXTENSION_PATH, 0)
            if path and not (self.last_passes if path == self.last_path else self.ask_path(path, cursor)):
                return False
        if choice == CHOICE_FILTERED and (record.kind == KIND_PUBLISH or record.kind == KIND_DELTA_PUBLISH):
            return matches(<FilterSet>self.filters[entry.number], entry, record)
        return True

    cdef uint8_t choose_topic(self, TopicEntry entry) except? 0:
        """Ask whether a topic is chosen, and note it."""
        cdef uint32_t capacity
        cdef uint8_t* grown
        cdef FilterSet filters = None
        cdef Filter filter_
        if entry.number >= self.choice_count:
            capacity = max(<uint32_t>64, entry.number * 2)
            grown = <uint8_t*>realloc(self.choices, capacity)
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.choice_count, CHOICE_UNKNOWN, capacity - self.choice_count)
            self.choices = grown
            self.filters.extend([None] * (capacity - self.choice_count))
            self.choice_count = capacity
        chosen = False if entry.name.startswith(RESERVED_TOPICS) else self.choose(entry.name, entry.message_type)
        if isinstance(chosen, bool):
            self.choices[entry.number] = CHOICE_ALL if chosen else CHOICE_NONE
            return self.choices[entry.number]
        evaluation, members = chosen
        filters = FilterSet(<EvaluationContext?>evaluation)
        for filter_ in members:
            filters.add(filter_, None)
        self.filters[entry.number] = filters
        self.choices[entry.number] = CHOICE_FILTERED
        return CHOICE_FILTERED

    cdef bint ask_path(self, uint64_t path, LogCursor cursor) except -1:
        """Whether records with a path are sent. Raises LogDamaged."""
        found = self.path_passes.get(path)
        if found is None:
            text = self.names.get(path)
            if text is None:
                raise LogDamaged(
                    cursor.file.path, cursor.position - cursor.file.start_position,
                    "a record came by replication, and the file has no name record for its path",
                )
            found = self.path_passes[path] = self.text_passes(text)
        self.last_path = path
        self.last_passes = found
        return found

    def passes_path(self, bytes text):
        """Whether records with this path are sent: its last group is passed, and the peer is not in it (§9)."""
        return self.text_passes(text)

    cdef bint text_passes(self, bytes text) except -1:
        group = None
        for line in text.decode("utf-8", "surrogatepass").split("\n"):
            name, _, rest = line.partition("\t")
            group, _, epoch = rest.rpartition("\t")
            if self.peer == (name, epoch):
                return False
        return self.passes_group is not None and bool(self.passes_group(group))


cdef inline object known_topic(LogCursor cursor, const RecordHeader* record):
    """The topic of a record. Raises LogDamaged if no topic record before it names its id."""
    entry = topic_of(cursor.file, record.topic_id)
    if entry is None:
        raise LogDamaged(
            cursor.file.path, record.position - cursor.file.start_position, "no topic record names the record's topic"
        )
    return entry


cdef bint matches(FilterSet filters, TopicEntry entry, const RecordHeader* record) except -1:
    """Whether a message matches one of the filters. A message that cannot be read matches none."""
    cdef EvaluationContext evaluation = filters.evaluation
    cdef uint64_t unreadable = evaluation.unreadable
    if filters.asks_message:
        tell_facts(evaluation.context, record, entry.raw_name, True, False)
    filters.match(record_payload(record), record.payload_length)
    if evaluation.unreadable != unreadable:
        evaluation.last_unreadable = (entry.name, record.publisher_id, record.sequence)
    return filters.matched_count > 0
