# Frames to send: the outbox of a connection, the log of frames that are not persisted, and batches of acknowledgements.

from cpython.mem cimport PyMem_Malloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef enum:
    SEND_AT_BYTES = 64 * 1024        # a burst is sent when this much has accumulated
    SEPARATE_BYTES = 64 * 1024       # a longer frame is a chunk of its own: no copy
    BLOCK_BYTES = 256 * 1024
    NUMBER_DIGITS = 20
    MAX_TOPICS = 10_000

cdef uint64_t NEVER = 0xFFFFFFFFFFFFFFFF
cdef uint64_t BURST_GAP_NS = 50_000  # publishes closer together than this are sent together
cdef bytes PERSISTED = b',"a":"persisted","s":'


cdef inline uint64_t now_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1_000_000_000 + <uint64_t>now.tv_nsec


cdef inline void write_length(char* place, uint64_t length) noexcept:
    place[0] = <char>(length >> 24)
    place[1] = <char>(length >> 16)
    place[2] = <char>(length >> 8)
    place[3] = <char>length


cdef inline Py_ssize_t write_number(char* place, uint64_t number) noexcept:
    """Write a decimal number; return its digits. Room for NUMBER_DIGITS is needed."""
    cdef char digits[20]
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t at
    while True:
        digits[count] = <char>(c"0" + number % 10)
        count += 1
        number //= 10
        if not number:
            break
    for at in range(count):
        place[at] = digits[count - 1 - at]
    return count


cdef class NumberedFrames:
    """Numbers frames and keeps them, one after the other. `Outbox` writes them in place: `takes`, `place`, `added`."""

    cdef readonly uint64_t next_number

    cdef bint takes(self, Py_ssize_t length) noexcept:
        """Whether there is room for a frame."""
        return False

    cdef char* place(self, Py_ssize_t length) except NULL:
        """Memory for the next frame, which must be added then."""
        raise MemoryError()

    cdef void added(self, Py_ssize_t length) noexcept:
        """Note that the frame is complete."""

    cdef char* lay_out(self, bytes start, bytes body, Py_ssize_t* length) except? NULL:
        """Number and keep a frame; return it, and its length. NULL without an exception: there is no room."""
        cdef Py_ssize_t start_bytes = PyBytes_GET_SIZE(start)
        cdef Py_ssize_t body_bytes = PyBytes_GET_SIZE(body)
        cdef char digits[NUMBER_DIGITS]
        cdef Py_ssize_t digit_count = write_number(digits, self.next_number)
        cdef char* place
        length[0] = 4 + start_bytes + digit_count + 1 + body_bytes
        if not self.takes(length[0]):
            return NULL
        place = self.place(length[0])
        write_length(place, length[0] - 4)
        memcpy(place + 4, PyBytes_AS_STRING(start), start_bytes)
        memcpy(place + 4 + start_bytes, digits, digit_count)
        place[4 + start_bytes + digit_count] = c"}"
        memcpy(place + 5 + start_bytes + digit_count, PyBytes_AS_STRING(body), body_bytes)
        self.added(length[0])
        return place

    def append(self, bytes start not None, bytes body not None):
        """Number and keep a frame. `start`: its header up to the number, which is the last field.

        Returns the number; 0 if there is no room.
        """
        cdef Py_ssize_t length
        return self.next_number - 1 if self.lay_out(start, body, &length) != NULL else 0


cdef class FrameBlock:
    """Consecutive frames of a FrameLog."""

    cdef char* data
    cdef Py_ssize_t capacity, used, dropped  # bytes; those of the first `dropped` frames count as free
    cdef uint32_t* ends                      # where each frame ends
    cdef Py_ssize_t frames, frame_capacity
    cdef uint64_t first                      # number of the first frame

    def __cinit__(self, Py_ssize_t capacity, uint64_t first):
        self.data = <char*>PyMem_Malloc(capacity)
        self.frame_capacity = max(16, min(2048, capacity // 64))
        self.ends = <uint32_t*>PyMem_Malloc(self.frame_capacity * sizeof(uint32_t))
        if self.data == NULL or self.ends == NULL:
            raise MemoryError()
        self.capacity = capacity
        self.first = first

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.ends)

    cdef inline Py_ssize_t begin(self, Py_ssize_t index) noexcept:
        return self.ends[index - 1] if index else 0


cdef class FrameLog(NumberedFrames):
    """Frames by consecutive numbers, in memory. `max_bytes`: its limit, which one frame may exceed; 0 = none.

    It grows at the end (`append`) and shrinks at the beginning (`drop_up_to`). After a jump of the
    numbers (`raise_next`) the frames before it are gone. From the number `stop_at` on, it refuses all frames.
    """

    cdef list blocks                         # in order; the first may be partly dropped
    cdef readonly uint64_t kept_bytes
    cdef readonly uint64_t count
    cdef public uint64_t max_bytes
    cdef public uint64_t stop_at

    def __init__(self, uint64_t max_bytes=0):
        self.blocks = []
        self.next_number = 1
        self.max_bytes = max_bytes
        self.stop_at = NEVER

    @property
    def lowest(self):
        """The lowest number kept; 0 = none."""
        return self.next_number - self.count if self.count else 0

    @property
    def full(self):
        """Whether `append` refuses."""
        return not self.takes(0)

    cdef bint takes(self, Py_ssize_t length) noexcept:
        return self.next_number < self.stop_at and not (self.max_bytes and self.kept_bytes >= self.max_bytes)

    def restart(self, uint64_t number):
        """Drop all frames, and continue with this number."""
        self.clear()
        self.next_number = number

    def raise_next(self, uint64_t number):
        """Continue with at least this number. Only an empty log can skip numbers; otherwise no effect."""
        if not self.count and number > self.next_number:
            self.next_number = number

    cdef char* place(self, Py_ssize_t length) except NULL:
        """Memory for the next frame."""
        cdef FrameBlock block
        cdef uint32_t* grown
        if self.blocks:
            block = <FrameBlock>self.blocks[len(self.blocks) - 1]
            if block.used + length <= block.capacity:
                if block.frames == block.frame_capacity:
                    grown = <uint32_t*>PyMem_Realloc(block.ends, 2 * block.frame_capacity * sizeof(uint32_t))
                    if grown == NULL:
                        raise MemoryError()
                    block.ends = grown
                    block.frame_capacity *= 2
                return block.data + block.used
        block = FrameBlock(max(length, BLOCK_BYTES), self.next_number)
        self.blocks.append(block)
        return block.data

    cdef void added(self, Py_ssize_t length) noexcept:
        cdef FrameBlock block = <FrameBlock>self.blocks[len(self.blocks) - 1]
        block.used += length
        block.ends[block.frames] = <uint32_t>block.used
        block.frames += 1
        self.next_number += 1
        self.count += 1
        self.kept_bytes += length

    def drop_up_to(self, uint64_t number):
        """Drop all frames up to this number."""
        cdef FrameBlock block
        cdef Py_ssize_t index
        cdef Py_ssize_t whole = 0
        for block in self.blocks:
            if number < block.first:
                break
            index = <Py_ssize_t>min(<uint64_t>block.frames, number - block.first + 1)
            if index > block.dropped:
                self.kept_bytes -= block.begin(index) - block.begin(block.dropped)
                self.count -= index - block.dropped
                block.dropped = index
            if block.dropped == block.frames:
                whole += 1
        del self.blocks[:whole]

    def frame(self, uint64_t number):
        """Return the frame with this number; None if it is not kept."""
        cdef FrameBlock block
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(self.blocks)
        cdef Py_ssize_t middle, index
        while low < high:
            middle = (low + high) // 2
            block = <FrameBlock>self.blocks[middle]
            if number < block.first:
                high = middle
            elif number >= block.first + <uint64_t>block.frames:
                low = middle + 1
            else:
                index = <Py_ssize_t>(number - block.first)
                if index < block.dropped:
                    return None
                return PyBytes_FromStringAndSize(
                    block.data + block.begin(index), block.ends[index] - block.begin(index)
                )
        return None

    def clear(self):
        """Drop all frames; the numbers continue."""
        self.blocks = []
        self.count = 0
        self.kept_bytes = 0


cdef class Outbox:
    """The frames of one client that wait to be written to its connection, in order.

    The engine sets `ready` (everything may be sent at once), the front end `blocked` (the peer does not read) and
    `signalled` (another thread will send). `log`: where the publish store numbers and keeps frames, if they need no
    call of the store; `numbered`: the client has a publish store, so a publish without `log` is not for `publish`.
    """

    cdef list chunks                 # before `buffer`
    cdef char* buffer
    cdef Py_ssize_t used, capacity
    cdef readonly uint64_t pending_bytes
    cdef readonly uint64_t frames    # frames added since the outbox was made
    cdef dict headers                # topic: header of its publishes
    cdef uint64_t last_ns            # of the last publish
    cdef uint64_t max_frame_bytes
    cdef public bint ready
    cdef public bint blocked
    cdef public bint signalled
    cdef readonly bint burst         # the last publish followed the one before closely, and little is pending
    cdef public bint numbered
    cdef public NumberedFrames log

    def __init__(self, uint64_t max_frame_bytes):
        self.chunks = []
        self.headers = {}
        self.max_frame_bytes = max_frame_bytes

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    cdef char* place(self, Py_ssize_t length) except NULL:
        """Room for `length` more bytes at the end of the buffer."""
        cdef Py_ssize_t capacity
        cdef char* grown
        if self.used + length > self.capacity:
            capacity = max(2 * self.capacity, self.used + length, 4096)
            grown = <char*>PyMem_Realloc(self.buffer, capacity)
            if grown == NULL:
                raise MemoryError()
            self.buffer = grown
            self.capacity = capacity
        return self.buffer + self.used

    cdef inline void placed(self, Py_ssize_t length) noexcept:
        self.used += length
        self.pending_bytes += length
        self.frames += 1

    cdef int end_buffer(self) except -1:
        if self.used:
            self.chunks.append(PyBytes_FromStringAndSize(self.buffer, self.used))
            self.used = 0
        return 0

    def add(self, bytes frame not None):
        """Add a frame."""
        cdef Py_ssize_t length = PyBytes_GET_SIZE(frame)
        if length > SEPARATE_BYTES:
            self.end_buffer()
            self.chunks.append(frame)
            self.pending_bytes += length
            self.frames += 1
        else:
            memcpy(self.place(length), PyBytes_AS_STRING(frame), length)
            self.placed(length)

    def add_parts(self, bytes start not None, bytes body not None):
        """Add a frame of which `body`, which may be large, is the end."""
        if PyBytes_GET_SIZE(body) > SEPARATE_BYTES:
            self.add(start)
            self.end_buffer()
            self.chunks.append(body)
            self.pending_bytes += PyBytes_GET_SIZE(body)
        else:
            self.add(start + body)

    def add_numbered(self, bytes start not None, bytes body not None):
        """Number a frame, keep it in `log` and add it. `start`: its header up to the number, which is the last field.

        Returns the number; 0 if the log has no room.
        """
        cdef Py_ssize_t length = 4 + PyBytes_GET_SIZE(start) + NUMBER_DIGITS + 1 + PyBytes_GET_SIZE(body)
        cdef char* frame
        self.place(length)               # first: nothing may fail after the frame is kept
        frame = self.log.lay_out(start, body, &length)
        if frame == NULL:
            return 0
        memcpy(self.buffer + self.used, frame, length)
        self.placed(length)
        return self.log.next_number - 1

    def take(self):
        """Remove and return the bytes, as chunks in order."""
        self.end_buffer()
        chunks, self.chunks = self.chunks, []
        self.pending_bytes = 0
        return chunks

    def clear(self):
        """Drop everything: the connection is lost."""
        self.chunks = []
        self.used = 0
        self.pending_bytes = 0

    def learn(self, str topic not None, bytes header not None):
        """Let `publish` handle this topic; `header` is the whole header of its publishes, without a number."""
        if len(self.headers) >= MAX_TOPICS:
            self.headers.clear()
        self.headers[topic] = header

    def publish(self, topic, data):
        """Publish a body, bytes or text, if that is possible at once.

        Returns the number of the message, 0 without a publish store. -1: nothing was done, the engine decides.
        Less than -1: done, and it is time to send: the number is -2 - result.
        """
        cdef const char* body
        cdef Py_ssize_t body_bytes, header_bytes, length
        cdef bytes header
        cdef char* place
        cdef char* number
        cdef uint64_t sequence = 0
        if not self.ready or self.blocked or type(topic) is not str:
            return -1
        if type(data) is bytes:
            body = PyBytes_AS_STRING(data)
            body_bytes = PyBytes_GET_SIZE(data)
        elif type(data) is str:
            try:
                body = PyUnicode_AsUTF8AndSize(data, &body_bytes)
            except UnicodeEncodeError:
                return -1
        else:
            return -1
        found = self.headers.get(topic)
        if found is None or body_bytes > SEPARATE_BYTES:
            return -1
        header = <bytes>found
        header_bytes = PyBytes_GET_SIZE(header)
        length = header_bytes + body_bytes
        if <uint64_t>(length + PyBytes_GET_SIZE(PERSISTED) + NUMBER_DIGITS) > self.max_frame_bytes:
            return -1
        place = self.place(4 + length + PyBytes_GET_SIZE(PERSISTED) + NUMBER_DIGITS + 1)
        memcpy(place + 4, PyBytes_AS_STRING(header), header_bytes)
        if self.numbered:
            if self.log is None:
                return -1
            sequence = self.log.next_number
            number = place + 4 + header_bytes - 1            # over the brace
            memcpy(number, PyBytes_AS_STRING(PERSISTED), PyBytes_GET_SIZE(PERSISTED))
            number += PyBytes_GET_SIZE(PERSISTED)
            number += write_number(number, sequence)
            number[0] = c"}"
            header_bytes = number + 1 - (place + 4)
            length = header_bytes + body_bytes
        memcpy(place + 4 + header_bytes, body, body_bytes)
        write_length(place, length)
        if self.numbered:
            if not self.log.takes(4 + length):
                return -1
            memcpy(self.log.place(4 + length), place, 4 + length)
            self.log.added(4 + length)
        self.placed(4 + length)
        if self.note() and self.signalled:
            return <long long>sequence
        return -2 - <long long>sequence

    cdef bint note(self) noexcept:
        cdef uint64_t now = now_ns()
        self.burst = now - self.last_ns <= BURST_GAP_NS and self.pending_bytes <= SEND_AT_BYTES
        self.last_ns = now
        return self.burst

    def note_publish(self):
        """Note a publish that the engine has added."""
        self.note()

    def note_sent(self):
        """Note that the bytes of the last publish have been sent: the time that took does not end the burst."""
        self.last_ns = now_ns()


cdef class AckBatch:
    """The unsent acknowledgements of one subscription for one topic, while a batch of them is under way.

    `limit`: a batch with this many is due; 0 = not under way.
    """

    cdef readonly str topic
    cdef bytes topic_text
    cdef bytearray bookmarks         # joined by commas
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t limit

    def __init__(self, str topic not None, Py_ssize_t limit=0):
        self.topic = topic
        self.topic_text = topic.encode()
        self.bookmarks = bytearray()
        self.limit = limit

    def add(self, bytes bookmarks not None, Py_ssize_t count):
        """Add `count` bookmarks, joined by commas."""
        if self.count:
            self.bookmarks += b","
        self.bookmarks += bookmarks
        self.count += count

    def take(self):
        """Remove and return the bookmarks, joined by commas."""
        text = self.bookmarks.decode()
        self.bookmarks = bytearray()
        self.count = 0
        self.limit = 0
        return text

    cdef bint add_next(self, ReceivedMessage message) except -1:
        """Add the bookmark of a message, unless the batch is then due or the message has another topic."""
        cdef const char* payload = PyBytes_AS_STRING(message._payload)
        if (
            self.count + 1 >= self.limit
            or not self.count
            or message.present & (TOPIC | BOOKMARK) != (TOPIC | BOOKMARK)
            or message.topic_bytes != <uint32_t>PyBytes_GET_SIZE(self.topic_text)
            or memcmp(payload + message.topic_at, PyBytes_AS_STRING(self.topic_text), message.topic_bytes) != 0
        ):
            return False
        self.bookmarks += b","
        self.bookmarks += payload[message.bookmark_at:message.bookmark_at + message.bookmark_bytes]
        self.count += 1
        return True
