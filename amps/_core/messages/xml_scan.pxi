# Fields of XML documents (expressions.md §12): texts of elements, and attributes under their names with an @.
#
# The whole document is always read in one pass: elements may be repeated, and all elements at one path are an array. So
# a document that is not well-formed is detected wherever the error is. xml_text.h defines well-formed.
#
# The value of an element is its own text: the text directly in it, CDATA included, joined and without blanks at both
# ends. An element without such text is NULL, or a container if it has attributes or elements (§14.4). Texts are not
# copied, unless they consist of several pieces or contain references. Subscripts within a path count the elements of
# one name in one element.
#
# An element is at several nodes of the tree if it is needed both as itself and by its number. Its content is then
# looked up at all of these nodes. If they are many, the work counts for the bound of values/evaluation_budget.pxi.

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from amps._core.values.fields cimport (
    ByteBuffer,
    Extractor,
    FieldSet,
    FieldValues,
    is_overworked,
    wanted_child,
)
from amps._core.values.value cimport VALUE_CONTAINER, VALUE_NULL, VALUE_RAW_TEXT, Value


cdef extern from "xml_text.h" nogil:
    int XML_DEPTH_MAX
    int XML_MALFORMED, XML_FINISHED, XML_OPEN, XML_ATTRIBUTE, XML_TAG_END, XML_CLOSE, XML_TEXT, XML_CDATA
    int XML_READ_TEXT, XML_READ_CDATA, XML_READ_ATTRIBUTE

    ctypedef struct xml_name:
        const uint8_t* text
        uint64_t length

    ctypedef struct xml_cursor:
        const uint8_t* at
        const uint8_t* end
        const uint8_t* begin
        const uint8_t* text
        const uint8_t* text_end
        xml_name name
        int depth
        bint is_empty

    void xml_begin(xml_cursor* cursor, const uint8_t* data, const uint8_t* end)
    void xml_release(xml_cursor* cursor)
    int xml_next(xml_cursor* cursor)
    int xml_attribute(xml_cursor* cursor)
    bint xml_skip_leaf(xml_cursor* cursor)
    bint xml_is_space(uint8_t byte)
    const uint8_t* xml_skip_space(const uint8_t* at, const uint8_t* end)
    bint xml_is_plain(const uint8_t* at, const uint8_t* end, int how)
    uint8_t* xml_read(const uint8_t* at, const uint8_t* end, int how, uint8_t* out)


cdef extern from *:
    """
    _Static_assert(XML_DEPTH_MAX == 64, "one frame for each open element, and one for the document");
    """


cdef enum:
    FRAMES = 65
    NODES_MAX = 16                 # nodes of an element; the work for more counts for the budget
    NODE_BYTES = 16                # bytes of a document that are read in the time of a lookup

cdef uint64_t MESSAGE_BYTES_MAX = 0xFFFFFFFF


# An open element.
cdef struct Frame:
    uint32_t first_active          # first of its nodes in `active`; they end where the next frame's begin
    bint wants_text                # one of its nodes has a slot
    bint has_inner                 # it has attributes or elements
    bint is_copied                 # its text is in `texts` from text_base on; otherwise in the message
    const uint8_t* text            # NULL = none yet
    const uint8_t* text_end
    uint64_t text_base
    uint64_t serial


cdef struct Occurrences:
    uint64_t serial                # the last element in which elements of a node were found
    uint32_t count                 # number of those elements so far


@cython.final
cdef class XmlExtractor(Extractor):

    cdef xml_cursor cursor
    cdef FieldSet fields
    cdef FieldValues values
    cdef Frame frames[FRAMES]      # the first is the document
    cdef int32_t* active           # nodes of the open elements, frame by frame
    cdef uint32_t active_count
    cdef uint32_t active_capacity
    cdef Occurrences* met          # by node of the FieldSet
    cdef uint32_t met_capacity
    cdef uint64_t serial
    cdef bint wants_text           # the element that was opened last has a slot
    cdef ByteBuffer texts          # joined texts of the open elements, the innermost one last
    cdef ByteBuffer name           # of an attribute, with its @

    def __cinit__(self):
        memset(&self.cursor, 0, sizeof(xml_cursor))
        self.active = NULL
        self.active_capacity = 0
        self.met = NULL
        self.met_capacity = 0
        self.serial = 0
        self.texts = ByteBuffer()
        self.name = ByteBuffer()

    def __dealloc__(self):
        xml_release(&self.cursor)
        free(self.active)
        free(self.met)

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef Frame* frame = &self.frames[0]
        cdef const uint8_t* end = data + length
        cdef uint32_t first_active
        cdef int token
        if fields.nodes[root].wanted_below == 0 or xml_skip_space(data, end) == end:
            return True
        if length > MESSAGE_BYTES_MAX:
            return False
        self.fields = fields
        self.values = values
        self.prepare_met()
        self.active_count = 0
        self.texts.length = 0
        self.wants_text = False
        self.begin_frame(frame, 0)
        self.activate(root)
        xml_begin(&self.cursor, data, end)
        while True:
            token = xml_next(&self.cursor)
            if token == XML_TEXT:
                if frame.wants_text:
                    self.add_text(frame, XML_READ_TEXT)
            elif token == XML_OPEN:
                frame.has_inner = True
                first_active = self.active_count
                self.wants_text = False
                if frame.first_active < first_active:
                    if first_active - frame.first_active > NODES_MAX and self.must_give_up(frame):
                        return False
                    self.activate_below(frame)
                if self.active_count == first_active and xml_skip_leaf(&self.cursor):
                    continue
                frame += 1
                self.begin_frame(frame, first_active)
                while True:
                    token = xml_attribute(&self.cursor)
                    if token != XML_ATTRIBUTE:
                        break
                    frame.has_inner = True
                    if frame.first_active < self.active_count:
                        if self.active_count - frame.first_active > NODES_MAX and self.must_give_up(frame):
                            return False
                        self.add_attribute(frame)
                if token == XML_MALFORMED:
                    return False
            elif token == XML_CLOSE:
                if frame.wants_text:
                    self.close_element(frame)
                self.active_count = frame.first_active
                frame -= 1
            elif token == XML_CDATA:
                if frame.wants_text:
                    self.add_text(frame, XML_READ_CDATA)
            else:
                return token == XML_FINISHED

    cdef int prepare_met(self) except -1:
        cdef uint32_t capacity = self.fields.node_count * 2
        cdef Occurrences* grown
        if self.fields.node_count > self.met_capacity:
            grown = <Occurrences*>realloc(self.met, capacity * sizeof(Occurrences))
            if grown == NULL:
                raise MemoryError()
            memset(grown, 0, capacity * sizeof(Occurrences))
            self.met = grown
            self.met_capacity = capacity
        return 0

    cdef int activate(self, int32_t node) except -1:
        """Add a node to the element that was opened last."""
        cdef uint32_t capacity = self.active_capacity * 2 + 64
        cdef int32_t* grown
        if self.active_count == self.active_capacity:
            grown = <int32_t*>realloc(self.active, capacity * sizeof(int32_t))
            if grown == NULL:
                raise MemoryError()
            self.active = grown
            self.active_capacity = capacity
        self.active[self.active_count] = node
        self.active_count += 1
        if self.fields.nodes[node].slot >= 0:
            self.wants_text = True
        return 0

    cdef void begin_frame(self, Frame* frame, uint32_t first_active) noexcept:
        self.serial += 1
        frame.serial = self.serial
        frame.first_active = first_active
        frame.wants_text = self.wants_text
        frame.has_inner = False
        frame.is_copied = False
        frame.text = NULL
        frame.text_base = self.texts.length

    cdef bint must_give_up(self, Frame* frame) noexcept:
        """Whether the budget is used up for looking up the content of an element at all of its nodes."""
        return is_overworked(<uint64_t>(self.active_count - frame.first_active) * NODE_BYTES)

    cdef int activate_below(self, Frame* parent) except -1:
        """Find the nodes of an element: below each node of its parent, and as an element of an array."""
        cdef FieldSet fields = self.fields
        cdef uint32_t at
        cdef int32_t node
        cdef Occurrences* met
        for at in range(parent.first_active, self.active_count):
            node = wanted_child(fields, self.active[at], self.cursor.name.text, <uint32_t>self.cursor.name.length)
            if node < 0:
                continue
            self.activate(node)
            if fields.nodes[node].first_element >= 0:
                met = &self.met[node]
                if met.serial != parent.serial:
                    met.serial = parent.serial
                    met.count = 0
                node = fields.element(node, met.count)
                met.count += 1
                if node >= 0:
                    self.activate(node)
        return 0

    cdef int add_attribute(self, Frame* frame) except -1:
        cdef uint32_t length = <uint32_t>self.cursor.name.length + 1
        cdef uint8_t* name = NULL
        cdef uint32_t at
        cdef int32_t node
        cdef const uint8_t* text = NULL
        cdef const uint8_t* text_end = NULL
        cdef uint8_t* made
        cdef Value* value
        for at in range(frame.first_active, self.active_count):
            if self.fields.nodes[self.active[at]].children == 0:
                continue
            if name == NULL:
                name = self.name.reserve(length)
                name[0] = c"@"
                memcpy(name + 1, self.cursor.name.text, length - 1)
            node = wanted_child(self.fields, self.active[at], name, length)
            if node < 0 or self.fields.nodes[node].slot < 0:
                continue
            if text == NULL:
                text = self.cursor.text
                text_end = self.cursor.text_end
                if not xml_is_plain(text, text_end, XML_READ_ATTRIBUTE):
                    made = self.values.arena.reserve(<uint64_t>(text_end - text))
                    text_end = xml_read(text, text_end, XML_READ_ATTRIBUTE, made)
                    text = made
            value = self.values.add(self.fields.nodes[node].slot)
            value.text = text
            value.length = <uint32_t>(text_end - text)
            value.kind = VALUE_RAW_TEXT if value.length else VALUE_NULL
        return 0

    cdef int add_text(self, Frame* frame, int how) except -1:
        """Add a piece of an element's text.

        Blanks before the first piece are dropped, because they would be stripped.
        """
        cdef const uint8_t* text = self.cursor.text
        cdef const uint8_t* end = self.cursor.text_end
        if not frame.is_copied:
            if frame.text == NULL:
                if xml_skip_space(text, end) == end:
                    return 0
                if xml_is_plain(text, end, how):
                    frame.text = text
                    frame.text_end = end
                    return 0
            else:
                self.texts.append(frame.text, <uint64_t>(frame.text_end - frame.text))
            frame.is_copied = True
        self.texts.length = <uint64_t>(
            xml_read(text, end, how, self.texts.reserve(<uint64_t>(end - text))) - self.texts.data
        )
        return 0

    cdef int close_element(self, Frame* frame) except -1:
        """Store the value of an element at all nodes that need it."""
        cdef const uint8_t* text = frame.text
        cdef const uint8_t* end = frame.text_end
        cdef uint8_t* made
        cdef uint32_t at
        cdef int32_t slot
        cdef Value* value
        if frame.is_copied:
            text = self.texts.data + frame.text_base
            end = self.texts.data + self.texts.length
        if text != NULL:
            text = xml_skip_space(text, end)
            while end > text and xml_is_space((end - 1)[0]):
                end -= 1
            if frame.is_copied and text < end:
                made = self.values.arena.reserve(<uint64_t>(end - text))
                memcpy(made, text, <uint64_t>(end - text))
                end = made + (end - text)
                text = made
            self.texts.length = frame.text_base
            if text == end:
                text = NULL
        for at in range(frame.first_active, self.active_count):
            slot = self.fields.nodes[self.active[at]].slot
            if slot < 0:
                continue
            value = self.values.add(slot)
            if text != NULL:
                value.kind = VALUE_RAW_TEXT
                value.text = text
                value.length = <uint32_t>(end - text)
            elif frame.has_inner:
                value.kind = VALUE_CONTAINER
        return 0
