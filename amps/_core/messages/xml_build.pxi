# Writing XML documents and changing fields of them (expressions.md §11, §12.4).
#
# A new document has no declaration and no blanks between elements. Elements are in the order of the paths, and the
# first step of every path is the root element. NULL is written as an element without content or an empty attribute, NaN
# and numbers too large for a double as 0, booleans as 1 and 0. A number that was read as text keeps that text. Control
# characters that no document can contain become U+FFFD. Other bytes are written as they are, or as references where
# they would be read as markup.
#
# A merge keeps everything else in the document. A value replaces the own text of an element; attributes and elements in
# it are other fields and stay. An element that is left out is removed with its content, unless something in it is
# written. Of several elements with one name in one element, the first is changed, and the destinations are removed from
# the others. New parts are written at the end of their element. A document with another root has no place for the
# fields, and counts as one that cannot be parsed.

import re

cimport cython
from libc.math cimport isfinite
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from amps._core.values.fields cimport ByteBuffer, Destination, Destinations, MessageBuilder, destination
from amps._core.values.value cimport VALUE_DOUBLE, VALUE_HAS_TEXT, VALUE_NULL, Arena, Value, to_text


cdef extern from "xml_write.h" nogil:
    int XML_ESCAPE_BYTES_MAX
    const uint8_t* xml_plain_end(const uint8_t* at, const uint8_t* end, bint in_attribute)
    uint32_t xml_escape(uint8_t byte, uint8_t* out)


cdef enum:
    OPEN_ELEMENTS = 65

_NAME = re.compile(rb"[A-Za-z_:\x80-\xff][-A-Za-z0-9._:\x80-\xff]*")


def _written(path):
    written = b"".join(b"/" + step if isinstance(step, bytes) else b"[%d]" % step for step in path)
    return written.decode(errors="replace")


def _check(path):
    """Raise ValueError if no document can hold the path."""
    for number, step in enumerate(path):
        if not isinstance(step, bytes):
            raise ValueError(f"{_written(path)} has a subscript: a document is built of names, leave it out")
        name = step[1:] if step.startswith(b"@") and number else step
        if name != step and number < len(path) - 1:
            raise ValueError(f"{_written(path)} continues below an attribute, which has nothing below it")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{_written(path)} has a step that is not a name in XML: {step.decode(errors='replace')}")
    if not path or len(path) - path[len(path) - 1].startswith(b"@") > XML_DEPTH_MAX:
        raise ValueError(f"a path of {len(path)} steps: a document has 1 to {XML_DEPTH_MAX} levels")


# An open element of the document that is merged into.
cdef struct OpenElement:
    int32_t node                   # -1: no destination is at it or below it
    bint removing                  # the destinations in it are removed
    bint loses_text                # its own text has been replaced, or is left out


@cython.final
cdef class XmlBuilder(MessageBuilder):

    cdef Destinations destinations
    cdef xml_cursor cursor
    cdef const uint8_t* kept       # unchanged bytes begin here and end at the cursor
    cdef OpenElement frames[OPEN_ELEMENTS]      # the first is the document
    cdef Value** values
    cdef Arena texts
    cdef ByteBuffer name           # of an attribute, with its @

    def __cinit__(self):
        memset(&self.cursor, 0, sizeof(xml_cursor))

    def __init__(self, paths):
        super().__init__(paths)
        self.name = ByteBuffer()
        for path in self.paths:
            _check(path)
            if path[0] != self.paths[0][0]:
                raise ValueError(
                    f"{_written(path)} and {_written(self.paths[0])} begin with different elements:"
                    " an XML document has one root, which is the first step of every path"
                )
        self.destinations = Destinations(self.paths, False)

    def __dealloc__(self):
        xml_release(&self.cursor)

    cdef int write(self, Value** values, Arena arena) except -1:
        self.values = values
        self.texts = arena
        self.destinations.choose(values)
        if self.destinations.nodes[0].first_child >= 0:
            self.write_element(self.destinations.nodes[0].first_child)
        return 0

    cdef int32_t next_element(self, int32_t node) noexcept:
        """The first element to be written among this node and its following siblings; -1: none."""
        cdef Destination* nodes = self.destinations.nodes
        while node >= 0 and (nodes[node].name[0] == c"@" or nodes[node].written == 0):
            node = nodes[node].next_sibling
        return node

    cdef int write_element(self, int32_t top) except -1:
        """Write an element with everything that is to be written in it."""
        cdef Destination* nodes = self.destinations.nodes
        cdef int32_t node = top
        cdef int32_t following
        while True:
            following = nodes[node].first_child
            self.output.append_byte(c"<")
            self.output.append(nodes[node].name, nodes[node].name_length)
            self.write_attributes(node, True)
            if self.write_content(node):
                following = self.next_element(following)
                if following >= 0:
                    node = following
                    continue
                self.write_end_tag(node)
            else:
                self.output.append(b"/>", 2)
            while node != top:
                following = self.next_element(nodes[node].next_sibling)
                if following >= 0:
                    break
                node = nodes[node].parent
                self.write_end_tag(node)
            if node == top:
                return 0
            node = following

    cdef int write_end_tag(self, int32_t node) except -1:
        self.output.append(b"</", 2)
        self.output.append(self.destinations.nodes[node].name, self.destinations.nodes[node].name_length)
        return self.output.append_byte(c">")

    cdef int write_attributes(self, int32_t node, bint all_of_them) except -1:
        """Write the attributes of an element: all, or those that the document does not contain."""
        cdef Destination* child
        node = self.destinations.nodes[node].first_child
        while node >= 0:
            child = &self.destinations.nodes[node]
            if child.name[0] == c"@" and child.written and (all_of_them or not child.met):
                self.output.append_byte(c" ")
                self.output.append(child.name + 1, child.name_length - 1)
                self.output.append_byte(c"=")
                self.write_quoted(self.values[child.value])
            node = child.next_sibling
        return 0

    cdef bint write_content(self, int32_t node) except -1:
        """Write the end of a start tag and the element's own text.

        False: there is no content, and nothing is written.
        """
        cdef Value text
        text.kind = VALUE_NULL
        if self.destinations.nodes[node].value >= 0:
            self.read_text(self.values[self.destinations.nodes[node].value], &text)
        if text.kind == VALUE_NULL and self.next_element(self.destinations.nodes[node].first_child) < 0:
            return False
        self.output.append_byte(c">")
        self.write_text(&text, False)
        return True

    cdef int write_quoted(self, const Value* value) except -1:
        cdef Value text
        self.read_text(value, &text)
        self.output.append_byte(c'"')
        self.write_text(&text, True)
        return self.output.append_byte(c'"')

    cdef int read_text(self, const Value* value, Value* text) except -1:
        """Convert a value to text, NULL if it has none. value: NULL if it is left out."""
        text.kind = VALUE_NULL
        if value == NULL:
            return 0
        text[0] = value[0]
        if text.kind == VALUE_DOUBLE and not text.flags & VALUE_HAS_TEXT and not isfinite(text.number.double_):
            text.text = <const uint8_t*><const char*>b"0"
            text.length = 1
            text.flags |= VALUE_HAS_TEXT
        return to_text(text, self.texts)

    cdef int write_text(self, const Value* value, bint in_attribute) except -1:
        cdef const uint8_t* at = value.text
        cdef const uint8_t* end
        cdef const uint8_t* stop
        if value.kind == VALUE_NULL:
            return 0
        end = at + value.length
        while True:
            stop = xml_plain_end(at, end, in_attribute)
            self.output.append(at, <uint64_t>(stop - at))
            if stop == end:
                return 0
            self.output.length += xml_escape(stop[0], self.output.reserve(XML_ESCAPE_BYTES_MAX))
            at = stop + 1

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        cdef const uint8_t* end = message + length
        cdef OpenElement* frame = &self.frames[0]
        cdef int token
        self.values = values
        self.texts = arena
        self.destinations.choose(values)
        if xml_skip_space(message, end) == end:
            if self.destinations.nodes[0].written:
                self.write_element(self.destinations.nodes[0].first_child)
            return True
        self.kept = message
        frame.node = 0
        frame.removing = False
        frame.loses_text = False
        self.destinations.begin(0)
        xml_begin(&self.cursor, message, end)
        while True:
            token = xml_next(&self.cursor)
            if token == XML_OPEN:
                if not self.merge_start(frame):
                    return False
                frame = &self.frames[self.cursor.depth]
            elif token == XML_CLOSE:
                if frame.node >= 0 and not frame.removing:
                    self.write_missing(frame.node)
                frame -= 1
            elif token == XML_TEXT or token == XML_CDATA:
                # Blanks may stay: those of the layout are at the ends of the text, where readers strip them.
                if frame.loses_text and xml_skip_space(self.cursor.text, self.cursor.text_end) < self.cursor.text_end:
                    self.keep(self.cursor.begin, self.cursor.at)
            else:
                self.keep(end, end)
                return token == XML_FINISHED

    cdef int keep(self, const uint8_t* stop, const uint8_t* onward) except -1:
        """Write the unchanged bytes up to `stop`, and skip those from there to `onward`."""
        self.output.append(self.kept, <uint64_t>(stop - self.kept))
        self.kept = onward
        return 0

    cdef bint merge_start(self, OpenElement* parent) except -1:
        """Merge a start tag, or remove the whole element. False: malformed, or another root."""
        cdef OpenElement* frame = parent + 1
        cdef const uint8_t* begin = self.cursor.begin
        cdef int32_t node = -1
        cdef Destination* named
        frame.removing = parent.removing
        frame.loses_text = False
        if parent.node >= 0:
            node = destination(
                self.destinations, parent.node, self.cursor.name.text, <uint32_t>self.cursor.name.length
            )
            if node < 0 and parent.node == 0 and self.destinations.nodes[0].written:
                return False
        frame.node = node
        if node < 0:
            return self.step_over_attributes()
        named = &self.destinations.nodes[node]
        frame.removing = parent.removing or named.met
        named.met = True
        if named.value >= 0:
            frame.loses_text = True
            if parent.node != 0 and (frame.removing or named.written == 0):
                return self.take_away(begin)
        self.destinations.begin(node)
        return self.merge_attributes(frame)

    cdef bint step_over_attributes(self) except -1:
        cdef int token = XML_ATTRIBUTE
        while token == XML_ATTRIBUTE:
            token = xml_attribute(&self.cursor)
        return token != XML_MALFORMED

    cdef bint take_away(self, const uint8_t* begin) except -1:
        """Leave out the element whose name was read last, with its end tag. False: malformed."""
        cdef int depth = self.cursor.depth - 1
        cdef int token = XML_OPEN
        self.keep(begin, begin)
        while token != XML_CLOSE or self.cursor.depth != depth:
            if token == XML_MALFORMED or token == XML_OPEN and not self.step_over_attributes():
                return False
            token = xml_next(&self.cursor)
        self.kept = self.cursor.at
        return True

    cdef bint merge_attributes(self, OpenElement* frame) except -1:
        """Merge the rest of the start tag of an element that stays, and write its content if it had none."""
        cdef uint32_t length
        cdef uint8_t* name
        cdef int32_t node
        cdef int token
        cdef Value* value
        cdef Value text
        while True:
            token = xml_attribute(&self.cursor)
            if token != XML_ATTRIBUTE:
                break
            length = <uint32_t>self.cursor.name.length + 1
            name = self.name.reserve(length)
            name[0] = c"@"
            memcpy(name + 1, self.cursor.name.text, length - 1)
            node = destination(self.destinations, frame.node, name, length)
            if node < 0:
                continue
            self.destinations.nodes[node].met = True
            value = self.values[self.destinations.nodes[node].value]
            if value == NULL or frame.removing:
                self.keep(self.cursor.begin, self.cursor.at)
            else:
                # With the quotes, because the new ones may differ.
                self.keep(self.cursor.text - 1, self.cursor.at)
                self.write_quoted(value)
        if token == XML_MALFORMED:
            return False
        if frame.removing:
            return True
        self.keep(self.cursor.begin, self.cursor.begin)
        self.write_attributes(frame.node, False)
        if self.cursor.is_empty:
            if self.write_content(frame.node):
                self.write_missing(frame.node)
                self.write_end_tag(frame.node)
                self.kept = self.cursor.at
            frame.node = -1  # its end needs no more work
        elif frame.loses_text:
            self.keep(self.cursor.at, self.cursor.at)
            self.read_text(self.values[self.destinations.nodes[frame.node].value], &text)
            self.write_text(&text, False)
        return True

    cdef int write_missing(self, int32_t node) except -1:
        """Write the elements that the document does not contain, in front of the end tag."""
        node = self.next_element(self.destinations.nodes[node].first_child)
        while node >= 0:
            if not self.destinations.nodes[node].met:
                self.keep(self.cursor.begin, self.cursor.begin)
                self.write_element(node)
            node = self.next_element(self.destinations.nodes[node].next_sibling)
        return 0
