# What has arrived of a bookmark subscription, and is not processed: 20 bytes for each message.

from cpython.unicode cimport PyUnicode_FindChar, PyUnicode_GET_LENGTH
from libc.string cimport memchr, memmove

cdef enum:
    DONE = 1                         # discarded out of order
    OLD = 2                          # not delivered since the subscription was last entered
    FLAG_BITS = 2
    NUMBER_MAX_DIGITS = 19
    FEW = 1024                       # as many elements may stay allocated

cdef int64_t NUMBER_MAX = 0x7FFFFFFFFFFFFFFF


cdef class Publisher:
    """What a subscription knows of one publisher.

    The numbers of the messages kept are in the order of their arrival. That is a sequence of ascending runs, nearly
    always one: a run begins where a subscription was replaced by one that begins earlier. So a number is found by a
    search in each run, and the lowest is the first of a run.
    """

    cdef str name
    cdef bytes text                  # of the name
    cdef uint32_t index
    cdef int64_t point               # the highest number up to which all is processed; -1 = none
    cdef int64_t start               # the number from which to begin, of an earlier run; -1 = none
    cdef int64_t highest             # the highest number that has arrived
    cdef int64_t reached             # where the point goes when the messages kept allow it
    cdef bint disordered             # a message kept has arrived after one with a higher number
    cdef set beyond                  # numbers above the point that were processed
    cdef int64_t* numbers            # of the messages kept
    cdef uint64_t* seqs              # their store numbers
    cdef Py_ssize_t head, tail, capacity
    cdef list runs                   # where each begins, as an index of these arrays

    def __cinit__(self, str name, bytes text, uint32_t index):
        self.name = name
        self.text = text
        self.index = index
        self.point = self.start = self.highest = self.reached = -1
        self.beyond = set()
        self.runs = []

    def __dealloc__(self):
        PyMem_Free(self.numbers)
        PyMem_Free(self.seqs)

    cdef int reserve(self) except -1:
        """Make room for one more."""
        cdef Py_ssize_t count = self.tail - self.head
        cdef Py_ssize_t capacity = max(16, self.capacity + self.capacity // 2)
        cdef void* grown
        if self.tail < self.capacity:
            return 0
        if self.head > count:
            memmove(self.numbers, self.numbers + self.head, count * sizeof(int64_t))
            memmove(self.seqs, self.seqs + self.head, count * sizeof(uint64_t))
            self.runs = [max(0, begin - self.head) for begin in self.runs]
            self.head, self.tail = 0, count
            return 0
        grown = PyMem_Realloc(self.numbers, capacity * sizeof(int64_t))
        if grown == NULL:
            raise MemoryError()
        self.numbers = <int64_t*>grown
        grown = PyMem_Realloc(self.seqs, capacity * sizeof(uint64_t))
        if grown == NULL:
            raise MemoryError()
        self.seqs = <uint64_t*>grown
        self.capacity = capacity
        return 0

    cdef int add(self, int64_t number, uint64_t seq) except -1:
        self.reserve()
        if self.tail == self.head:
            self.runs = [self.tail]
        elif number < self.numbers[self.tail - 1]:
            self.runs.append(self.tail)
        self.numbers[self.tail] = number
        self.seqs[self.tail] = seq
        self.tail += 1
        return 0

    cdef int64_t pop(self) except -1:
        """Remove the first message; return its number."""
        cdef int64_t number = self.numbers[self.head]
        self.head += 1
        if len(self.runs) > 1 and <Py_ssize_t>self.runs[1] <= self.head:
            del self.runs[0]
        if self.head == self.tail:
            self.head = self.tail = 0
            if self.capacity > FEW:
                PyMem_Free(self.numbers)
                PyMem_Free(self.seqs)
                self.numbers = NULL
                self.seqs = NULL
                self.capacity = 0
        return number

    cdef uint64_t find(self, int64_t number) except? 0:
        """Return the store number of a message kept; 0 = not kept."""
        cdef Py_ssize_t run, low, high, middle
        cdef Py_ssize_t end = self.tail
        if self.tail == self.head or number > self.highest:
            return 0
        for run in range(len(self.runs) - 1, -1, -1):
            low = max(self.head, <Py_ssize_t>self.runs[run])
            high = end
            end = low
            while low < high:
                middle = (low + high) // 2
                if self.numbers[middle] < number:
                    low = middle + 1
                else:
                    high = middle
            if low < self.tail and self.numbers[low] == number:
                return self.seqs[low]
        return 0

    cdef int64_t lowest(self) except -2:
        """The lowest number kept; -1 = none."""
        cdef int64_t lowest = -1
        cdef int64_t number
        if self.tail == self.head:
            return -1
        for begin in self.runs:
            number = self.numbers[max(self.head, <Py_ssize_t>begin)]
            if lowest < 0 or number < lowest:
                lowest = number
        return lowest

    cdef bint is_processed(self, int64_t number) except -1:
        return number <= self.point or (len(self.beyond) > 0 and number in self.beyond)

    cdef int raise_point(self, int64_t number) except -1:
        """Move the point to a number, or as far as the messages kept allow."""
        cdef int64_t lowest = self.lowest()
        cdef int64_t target
        self.reached = max(self.reached, number)
        target = self.reached if lowest < 0 else min(self.reached, lowest - 1)
        if target < number and not self.find(number):
            self.beyond.add(number)
        if target > self.point:
            self.point = target
            if self.beyond:
                self.beyond = {above for above in self.beyond if above > target}
        if lowest < 0:
            self.disordered = False
        return 0


cdef Py_ssize_t cut(str bookmark, const char** text, int64_t* number) except -2:
    """Return the length of a bookmark's publisher, its text and its number; -1 if it names no message."""
    cdef Py_ssize_t length, at
    cdef const char* bar
    cdef uint64_t value = 0
    try:
        text[0] = PyUnicode_AsUTF8AndSize(bookmark, &length)
    except UnicodeEncodeError:
        return -1
    bar = <const char*>memchr(text[0], c"|", length)
    if bar == NULL:
        return -1
    at = bar - text[0] + 1
    while at < length and text[0][at] != c"|":
        if text[0][at] < c"0" or text[0][at] > c"9" or at - (bar - text[0]) > NUMBER_MAX_DIGITS:
            return -1
        value = value * 10 + <uint64_t>(text[0][at] - c"0")
        at += 1
    if at == bar - text[0] + 1 or value > <uint64_t>NUMBER_MAX:
        return -1
    number[0] = <int64_t>value
    return bar - text[0]


cdef class Arrivals:
    """The messages of one subscription that have arrived and are not processed, and each publisher's point.

    `amps.client.stores.bookmark` has the rules. The numbers of the store are consecutive; a message leaves when it and
    all before it are discarded. `due`: when all messages up to this one have left, `settle` of a subclass is called.
    """

    cdef readonly uint64_t last          # the highest store number given
    cdef readonly uint64_t oldest        # the lowest one kept, or `last + 1`
    cdef readonly uint64_t done_count, old_count
    cdef public uint64_t due
    cdef uint32_t* entries               # of the messages kept: index of the publisher, and flags
    cdef Py_ssize_t head, tail, capacity
    cdef list publishers
    cdef dict by_name
    cdef Publisher recent                # the publisher of the last bookmark

    def __init__(self):
        self.oldest = 1
        self.due = NEVER
        self.publishers = []
        self.by_name = {}

    def __dealloc__(self):
        PyMem_Free(self.entries)

    @property
    def kept_count(self):
        """How many messages are kept."""
        return self.last + 1 - self.oldest

    cdef Publisher publisher(self, str name, bint make):
        cdef Publisher publisher = self.by_name.get(name)
        if publisher is None and make:
            publisher = Publisher(name, name.encode(), <uint32_t>len(self.publishers))
            self.publishers.append(publisher)
            self.by_name[name] = publisher
        return publisher

    cdef Publisher parse(self, str bookmark, int64_t* number, bint make):
        """Return the publisher of a bookmark, and its number; None if there is none, or it names no message."""
        cdef const char* text
        cdef Py_ssize_t length = cut(bookmark, &text, number)
        if length < 0:
            return None
        if (
            self.recent is None
            or length != PyBytes_GET_SIZE(self.recent.text)
            or memcmp(text, PyBytes_AS_STRING(self.recent.text), length) != 0
        ):
            publisher = self.publisher(text[:length].decode(), make)
            if publisher is None:
                return None
            self.recent = publisher
        return self.recent

    cdef int add(self, uint32_t entry) except -1:
        cdef Py_ssize_t count = self.tail - self.head
        cdef Py_ssize_t capacity
        cdef void* grown
        if self.tail == self.capacity:
            if self.head > count:
                memmove(self.entries, self.entries + self.head, count * sizeof(uint32_t))
                self.head, self.tail = 0, count
            else:
                capacity = max(16, self.capacity + self.capacity // 2)
                grown = PyMem_Realloc(self.entries, capacity * sizeof(uint32_t))
                if grown == NULL:
                    raise MemoryError()
                self.entries = <uint32_t*>grown
                self.capacity = capacity
        self.entries[self.tail] = entry
        self.tail += 1
        return 0

    cdef inline uint32_t* entry(self, uint64_t seq) noexcept:
        return self.entries + self.head + <Py_ssize_t>(seq - self.oldest)

    def log(self, str bookmark not None):
        """Keep an arriving message. Returns its store number; 0 = processed before, or no bookmark of a message."""
        cdef int64_t number
        cdef uint64_t seq
        cdef uint32_t* entry
        cdef Publisher publisher = self.parse(bookmark, &number, True)
        if publisher is None:
            return 0
        seq = publisher.find(number)
        if seq:
            entry = self.entry(seq)
            if entry[0] & OLD:
                entry[0] &= ~<uint32_t>OLD
                self.old_count -= 1
            return seq
        if publisher.is_processed(number):
            return 0
        publisher.reserve()
        self.add(publisher.index << FLAG_BITS)
        self.last += 1
        publisher.add(number, self.last)
        if number > publisher.highest:
            publisher.highest = number
        else:
            publisher.disordered = True
        return self.last

    def is_discarded(self, str bookmark not None):
        """Whether a message was discarded, or delivered in this run."""
        cdef int64_t number
        cdef uint64_t seq
        cdef Publisher publisher = self.parse(bookmark, &number, False)
        if publisher is None:
            return False
        if publisher.is_processed(number):
            return True
        seq = publisher.find(number)
        return seq != 0 and (self.entry(seq)[0] & (OLD | DONE)) != OLD

    def discard(self, seq):
        """Note that a message was processed; False if that is known, or the number is not."""
        cdef uint64_t at
        cdef uint32_t* entry
        if not self.oldest <= seq <= self.last:
            return False
        at = seq
        entry = self.entry(at)
        if entry[0] & DONE:
            return False
        entry[0] |= DONE
        self.done_count += 1
        while self.oldest <= self.last and self.entries[self.head] & DONE:
            self.remove_oldest()
        if self.due < self.oldest:
            self.settle()
        return True

    cdef int remove_oldest(self) except -1:
        cdef uint32_t entry = self.entries[self.head]
        cdef Publisher publisher = <Publisher>self.publishers[entry >> FLAG_BITS]
        cdef int64_t number = publisher.pop()
        self.head += 1
        self.oldest += 1
        self.done_count -= 1
        if entry & OLD:
            self.old_count -= 1
        if self.head == self.tail:
            self.head = self.tail = 0
            if self.capacity > FEW:
                PyMem_Free(self.entries)
                self.entries = NULL
                self.capacity = 0
        if publisher.disordered:
            publisher.raise_point(number)
        elif number > publisher.point:
            publisher.point = number
        return 0

    def settle(self):
        """Called when all messages up to `due` have left."""

    def raise_point(self, str name not None, int64_t number):
        """Move the point of a publisher to a number, or as far as its messages kept allow."""
        self.publisher(name, True).raise_point(number)

    def above_points(self, str bookmarks not None):
        """Return publisher and number of the bookmarks, joined by commas, that are above the points."""
        cdef dict found = {}
        cdef int64_t number
        cdef const char* text
        cdef Py_ssize_t length
        cdef Publisher publisher
        if PyUnicode_FindChar(bookmarks, c",", 0, PyUnicode_GET_LENGTH(bookmarks), 1) < 0:
            each = (bookmarks,)
        else:
            each = bookmarks.split(",")
        for bookmark in each:
            length = cut(bookmark, &text, &number)
            if length < 0:
                continue
            name = text[:length].decode()
            publisher = self.by_name.get(name)
            if (publisher is None or number > publisher.point) and number > <int64_t>found.get(name, -1):
                found[name] = number
        return found

    def begin_at(self, str name not None, int64_t number):
        """Note the number from which to begin, of an earlier run whose messages are not known."""
        self.publisher(name, True).start = number

    def places(self):
        """Return of each publisher: name, point, start, lowest number kept, last one received and kept; -1 = none."""
        cdef Publisher one
        return [
            (one.name, one.point, one.start, one.lowest(), one.numbers[one.tail - 1] if one.tail > one.head else -1)
            for one in self.publishers
        ]

    def begins_with(self, str bookmark not None):
        """Whether a kept message is part of the recovery point: its publisher has no point, and no lower message."""
        cdef int64_t number
        cdef Publisher publisher = self.parse(bookmark, &number, False)
        return publisher is not None and publisher.point < 0 and publisher.lowest() == number

    def released(self):
        """Note that the subscription ended: messages that are not discarded may be delivered again."""
        cdef Py_ssize_t at
        for at in range(self.head, self.tail):
            self.entries[at] |= OLD
        self.old_count = self.last + 1 - self.oldest

    def continue_from(self, uint64_t last):
        """Set the last store number given. Nothing may be kept."""
        if self.tail != self.head:
            raise ValueError("messages are kept")
        self.last = last
        self.oldest = last + 1

    def kept(self):
        """Yield store number, name of the publisher, number and whether it is done, of each message kept."""
        cdef uint64_t seq
        cdef uint32_t entry
        cdef Publisher publisher
        cdef list reached = [(<Publisher>one).head for one in self.publishers]
        for seq in range(self.oldest, self.last + 1):
            entry = self.entry(seq)[0]
            publisher = <Publisher>self.publishers[entry >> FLAG_BITS]
            at = reached[publisher.index]
            reached[publisher.index] = at + 1
            yield seq, publisher.name, publisher.numbers[<Py_ssize_t>at], bool(entry & DONE)
