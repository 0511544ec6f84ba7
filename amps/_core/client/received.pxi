# Received frames: the reader that cuts them, and the part of a message that is decoded from its payload.
#
# The reader handles the common frame by itself: a publish whose `sids` is the id of one subscription that needs no
# other processing. It scans the header once, copies the payload into a message, and appends the message to the events
# of the engine. It returns every other payload, and continues with the next call.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from amps._core.shm.held cimport HeldBuffer
from amps._core.wire.framing cimport (
    FIELD_BOOKMARK, FIELD_CMD, FIELD_LEASEPERIOD, FIELD_SIDS, FIELD_TOPIC, HeaderView, scan_header,
)
from amps._core.wire.framing import FrameTooLarge, HeaderError, parse_header

cdef extern from *:
    """
    /* An instance of a Python class that derives from the class of received messages. Its constructor is not called. */
    static inline PyObject* amps_new_instance(PyTypeObject* type, PyObject* no_arguments) {
        return type->tp_new(type, no_arguments, NULL);
    }
    """
    object amps_new_instance(PyTypeObject* type, tuple no_arguments)

cdef tuple NO_ARGUMENTS = ()
cdef uint64_t LEASED = <uint64_t>1 << <int>FIELD_LEASEPERIOD
cdef uint64_t SIDS = <uint64_t>1 << <int>FIELD_SIDS
cdef uint64_t CMD = <uint64_t>1 << <int>FIELD_CMD
cdef uint64_t TOPIC = <uint64_t>1 << <int>FIELD_TOPIC
cdef uint64_t BOOKMARK = <uint64_t>1 << <int>FIELD_BOOKMARK


cdef class ReceivedMessage:
    """The payload of a message: header and body. A field is decoded when it is read.

    The base of `amps.client.Message`, which has all other fields. `payload`: bytes of header and body.
    """

    cdef readonly bytes _payload
    cdef public object _route
    cdef public object _header           # the parsed header, a dictionary by long names; None = not parsed
    cdef public object _command
    cdef public object _sub_id
    cdef public Py_ssize_t _body_at      # -1 = not known
    cdef public Py_ssize_t _body_end
    cdef public long long _store_seq
    # Of a header that the reader has scanned: the fields that it has, and the places of two of them.
    cdef uint64_t present
    cdef uint32_t topic_at, topic_bytes, bookmark_at, bookmark_bytes

    def __init__(self, payload, route=None, command=None):
        self._payload = payload
        self._route = route
        self._command = command
        self._body_at = -1
        self._body_end = len(self._payload)

    def _fields(self):
        if self._header is None:
            self._header, self._body_at = parse_header(self._payload)
        return self._header

    cdef int find_body(self) except -1:
        cdef HeaderView view
        if self._body_at < 0:
            self._body_at = scan_header(
                PyBytes_AS_STRING(self._payload), <uint32_t>PyBytes_GET_SIZE(self._payload), &view
            )
            if self._body_at < 0:
                self._body_at = -1
                self._fields()               # raises HeaderError
        return 0

    @property
    def data(self):
        """The body."""
        self.find_body()
        return PyBytes_FromStringAndSize(
            PyBytes_AS_STRING(self._payload) + self._body_at, self._body_end - self._body_at
        )

    @property
    def view(self):
        """The body without a copy."""
        self.find_body()
        return memoryview(self._payload)[self._body_at:self._body_end]

    @property
    def topic(self):
        """The topic to which it was published."""
        if self.present & TOPIC:
            return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(self._payload) + self.topic_at, self.topic_bytes, NULL)
        return self._fields().get("topic")

    @property
    def bookmark(self):
        """The bookmark of the message in the log."""
        if self.present & BOOKMARK:
            return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(self._payload) + self.bookmark_at, self.bookmark_bytes, NULL)
        if type(self._header) is dict:
            return (<dict>self._header).get("bookmark")
        return self._fields().get("bookmark")

    def ack(self, str options=""):
        """Acknowledge a queue message; no effect on other messages. Never waits."""
        cdef object route = self._route
        cdef object batch
        if route is None or route.owner is None:
            return
        if not options and self.present & LEASED:
            batch = route.ack_batch
            if batch is not None and (<AckBatch>batch).add_next(self):
                return
        route.owner.ack(self, options=options)


cdef class FrameReader:
    """Cuts received bytes into payloads, and makes the messages of known subscriptions.

    - max_frame_bytes: a longer frame raises FrameTooLarge as soon as its length is read.
    - message_type: a class derived from ReceivedMessage. deliver_type(route, messages): the event of its messages.

    Bytes may arrive split or joined in any way. Frames of length 0 are skipped.
    """

    cdef readonly uint64_t max_frame_bytes
    cdef readonly uint64_t frames        # frames cut
    cdef readonly uint64_t content       # messages made
    cdef PyTypeObject* type
    cdef object message_type
    cdef object deliver_type
    cdef HeldBuffer taken                # the bytes of the last `feed`
    cdef bint holds
    cdef Py_ssize_t at
    cdef char* rest                      # an incomplete frame, with its length
    cdef Py_ssize_t rest_bytes
    cdef Py_ssize_t rest_capacity
    cdef object last_route
    cdef bytes last_sids
    cdef list batch

    def __init__(self, uint64_t max_frame_bytes, type message_type, deliver_type):
        if not issubclass(message_type, ReceivedMessage):
            raise TypeError("message_type must derive from ReceivedMessage")
        self.max_frame_bytes = max_frame_bytes
        self.message_type = message_type
        self.type = <PyTypeObject*>message_type
        self.deliver_type = deliver_type
        self.last_sids = b""

    def __dealloc__(self):
        if self.holds:
            PyBuffer_Release(&self.taken.view)
        PyMem_Free(self.rest)

    @property
    def buffered_bytes(self):
        """The number of bytes taken and not yet returned in a frame."""
        return self.rest_bytes + (self.taken.view.len - self.at if self.holds else 0)

    def feed(self, data):
        """Take received bytes. `data` is read until `next` returns None, and must not change until then."""
        if self.holds:
            raise ValueError("feed: the bytes of the last call have not been read to their end")
        PyObject_GetBuffer(data, &self.taken.view, PyBUF_SIMPLE)
        self.holds = True
        self.at = 0
        self.last_route = None

    def clear(self):
        """Drop all bytes that were taken: the connection is lost."""
        if self.holds:
            PyBuffer_Release(&self.taken.view)
            self.holds = False
        self.rest_bytes = 0
        self.last_route = None

    cdef int keep(self, const char* data, Py_ssize_t length, Py_ssize_t wanted) except -1:
        """Append bytes to the incomplete frame, which will have `wanted` bytes. Memory grows with what is received."""
        cdef Py_ssize_t needed = self.rest_bytes + length
        cdef Py_ssize_t capacity
        cdef char* grown
        if needed > self.rest_capacity:
            capacity = max(needed, min(wanted, 2 * needed), 4096)
            grown = <char*>PyMem_Realloc(self.rest, capacity)
            if grown == NULL:
                raise MemoryError()
            self.rest = grown
            self.rest_capacity = capacity
        memcpy(self.rest + self.rest_bytes, data, length)
        self.rest_bytes = needed
        return 0

    cdef Py_ssize_t length_at(self, const char* data) except -1:
        cdef const unsigned char* text = <const unsigned char*>data
        cdef uint64_t length = (<uint64_t>text[0] << 24) | (text[1] << 16) | (text[2] << 8) | text[3]
        if length > self.max_frame_bytes:
            raise FrameTooLarge(f"frame of {length} bytes is over the limit of {self.max_frame_bytes}")
        return <Py_ssize_t>length

    def next(self, dict routes, list events):
        """Return the payload of the next frame that needs the engine; None when the bytes taken are used up.

        The frames before it are publishes for `routes`, by the bytes of their `sids`. Their messages are in `events`:
        one deliver event for all consecutive messages of a route. Raises FrameTooLarge.
        """
        cdef const char* data
        cdef Py_ssize_t length, missing
        cdef object payload
        if not self.holds:
            return None
        while True:
            if self.rest_bytes:
                # Complete the frame that began in earlier bytes.
                if self.rest_bytes < 4:
                    missing = min(4 - self.rest_bytes, self.taken.view.len - self.at)
                    self.keep(<const char*>self.taken.view.buf + self.at, missing, 4)
                    self.at += missing
                    if self.rest_bytes < 4:
                        break
                length = self.length_at(self.rest)
                missing = min(4 + length - self.rest_bytes, self.taken.view.len - self.at)
                self.keep(<const char*>self.taken.view.buf + self.at, missing, 4 + length)
                self.at += missing
                if self.rest_bytes < 4 + length:
                    break
                self.rest_bytes = 0
                data = self.rest + 4
            else:
                missing = self.taken.view.len - self.at
                if missing < 4:
                    if missing:
                        self.keep(<const char*>self.taken.view.buf + self.at, missing, 4)
                    break
                data = <const char*>self.taken.view.buf + self.at + 4
                length = self.length_at(data - 4)
                if missing < 4 + length:
                    self.keep(data - 4, missing, 4 + length)
                    break
                self.at += 4 + length
            if length == 0:
                continue
            self.frames += 1
            payload = self.deliver(data, length, routes, events)
            if payload is not None:
                self.last_route = None
                if self.rest_capacity > 1 << 20 and not self.rest_bytes:
                    self.release_rest()
                return payload
        PyBuffer_Release(&self.taken.view)
        self.holds = False
        self.last_route = None
        if self.rest_capacity > 1 << 20 and not self.rest_bytes:
            self.release_rest()
        return None

    cdef void release_rest(self) noexcept:
        PyMem_Free(self.rest)
        self.rest = NULL
        self.rest_capacity = 0

    cdef object deliver(self, const char* data, Py_ssize_t length, dict routes, list events):
        """Make the message of a publish for a known route and return None; otherwise return the payload."""
        cdef HeaderView view
        cdef object route = None
        cdef int32_t body_at = -1
        cdef uint32_t size
        cdef ReceivedMessage message
        if length > 8 and memcmp(data + 1, b'"c":"p"', 7) == 0:
            body_at = scan_header(data, <uint32_t>length, &view)
        # A second `c` in the header, or an escape in a field that is decoded here, is for the general scanner.
        if (
            body_at < 0
            or view.present & (SIDS | CMD) != (SIDS | CMD)
            or view.escaped & (SIDS | CMD | TOPIC | BOOKMARK)
            or view.field[<int>FIELD_CMD].length != 1
            or view.field[<int>FIELD_CMD].data[0] != c'p'
        ):
            return PyBytes_FromStringAndSize(data, length)
        size = view.field[<int>FIELD_SIDS].length
        if (
            self.last_route is not None
            and size == <uint32_t>PyBytes_GET_SIZE(self.last_sids)
            and memcmp(view.field[<int>FIELD_SIDS].data, PyBytes_AS_STRING(self.last_sids), size) == 0
        ):
            route = self.last_route
        else:
            sids = PyBytes_FromStringAndSize(view.field[<int>FIELD_SIDS].data, size)
            route = routes.get(sids)
            if route is None:
                return PyBytes_FromStringAndSize(data, length)
            self.last_route = route
            self.last_sids = sids
            self.batch = []
            events.append(self.deliver_type(route, self.batch))
        message = <ReceivedMessage>amps_new_instance(self.type, NO_ARGUMENTS)
        message._payload = PyBytes_FromStringAndSize(data, length)
        message._route = route
        message._command = "publish"
        message._body_at = body_at
        message._body_end = length
        message.present = view.present & view.quoted
        if view.present & TOPIC:
            message.topic_at = <uint32_t>(view.field[<int>FIELD_TOPIC].data - data)
            message.topic_bytes = view.field[<int>FIELD_TOPIC].length
        if view.present & BOOKMARK:
            message.bookmark_at = <uint32_t>(view.field[<int>FIELD_BOOKMARK].data - data)
            message.bookmark_bytes = view.field[<int>FIELD_BOOKMARK].length
        self.batch.append(message)
        self.content += 1
        return None
