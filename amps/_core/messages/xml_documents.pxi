# Merging, comparing and reducing XML documents (sow.md §14, §17, §18).
#
# The members of an element are its attributes, named with an @, its own text, and the elements in it. Repeated elements
# are an array. The text has an empty name; its pieces are like repeated members. So each path is changed by itself: a
# delta with an attribute of an element leaves its text as it is. Attributes that are added stand at the end of the
# start tag, all else in front of the end tag. Blanks at the ends of a text do not belong to it.
#
# A document needs its root: where nothing is left, the root is empty. A delta with another root is refused. In a
# difference from a document with another root, the new document is written whole.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from amps._core.values.documents cimport (
    FLAG_ADDED,
    MARK_EDIT,
    MARK_REMOVE,
    MARK_REPLACE,
    MEMBER_NULL,
    MEMBER_OBJECT,
    MEMBER_VALUE,
    Documents,
    Member,
    MemberTree,
    expands,
    meet,
    pass_member,
)
from amps._core.values.fields cimport ByteBuffer


# An open element.
cdef struct OpenMember:
    int32_t member                 # its entry; -1 = none
    int32_t node                   # the same if its members get entries
    int32_t last_text              # entry of the last piece of its text that is not blank; -1 = none
    bint ends_plain                # that piece is no CDATA
    bint has_text
    bint holds                     # it has attributes, text or elements


@cython.final
cdef class XmlDocuments(Documents):

    cdef xml_cursor reader
    cdef OpenMember opened[FRAMES]  # the first is the document

    def __cinit__(self):
        memset(&self.reader, 0, sizeof(xml_cursor))

    def __init__(self):
        super().__init__()
        self.base.repeats = self.other.repeats = True

    def __dealloc__(self):
        xml_release(&self.reader)

    cdef bint merge(
        self,
        const uint8_t* stored, uint64_t stored_length,
        const uint8_t* delta, uint64_t delta_length,
        ByteBuffer output,
    ) except -1:
        if not Documents.merge(self, stored, stored_length, delta, delta_length, output):
            return False
        return self.base.members[0].count == 0 or self.base.members[0].added == 0  # else there are two roots

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        cdef const uint8_t* end = data + length
        cdef xml_cursor* reader = &self.reader
        cdef int token
        tree.begin = data
        tree.end = end
        tree.members[0].content = tree.members[0].last_end = data
        if xml_skip_space(data, end) == end:
            return True
        if length > MESSAGE_BYTES_MAX:
            return False
        self.opened[0].member = self.opened[0].node = 0
        self.opened[0].last_text = -1
        xml_begin(reader, data, end)
        while True:
            token = xml_next(reader)
            if token == XML_OPEN:
                if not self.open_element(tree, &self.opened[reader.depth - 1], &self.opened[reader.depth]):
                    return False
            elif token == XML_CLOSE:
                self.close_element(tree, &self.opened[reader.depth], &self.opened[reader.depth + 1])
            elif token == XML_TEXT or token == XML_CDATA:
                self.enter_text(tree, &self.opened[reader.depth], token == XML_TEXT)
            else:
                return token == XML_FINISHED

    cdef bint open_element(self, MemberTree tree, OpenMember* parent, OpenMember* frame) except -1:
        """Read a start tag, or the whole of an element that needs no entry. False: malformed."""
        cdef xml_cursor* reader = &self.reader
        cdef const uint8_t* begin = reader.begin
        cdef int token
        parent.holds = True
        frame.member = frame.node = frame.last_text = -1
        frame.holds = frame.has_text = False
        if parent.node >= 0:
            frame.member = meet(tree, parent.node, reader.name.text, <uint32_t>reader.name.length)
        if frame.member < 0:
            if xml_skip_leaf(reader):
                if parent.node >= 0:
                    pass_member(tree, parent.node, reader.at)
                return True
        else:
            tree.members[frame.member].begin = tree.members[frame.member].value = begin
            tree.members[frame.member].kind = MEMBER_OBJECT
            if expands(tree, frame.member, MEMBER_OBJECT):
                frame.node = frame.member
        while True:
            token = xml_attribute(reader)
            if token != XML_ATTRIBUTE:
                break
            frame.holds = True
            if frame.node >= 0:
                self.enter_attribute(tree, frame.node)
        if token == XML_MALFORMED:
            return False
        if frame.member >= 0:
            tree.members[frame.member].content = reader.begin
        return True

    cdef int enter_attribute(self, MemberTree tree, int32_t node) except -1:
        cdef uint32_t length = <uint32_t>self.reader.name.length + 1
        cdef uint8_t* name = tree.texts.reserve(length)
        cdef int32_t child
        cdef Member* member
        name[0] = c"@"
        memcpy(name + 1, self.reader.name.text, length - 1)
        child = meet(tree, node, name, length)
        if child >= 0:
            member = &tree.members[child]
            member.begin = self.reader.begin
            member.value = self.reader.text - 1  # with the quotes, because those of another value may differ
            member.end = self.reader.at
            member.kind = MEMBER_VALUE if self.reader.text_end > self.reader.text else MEMBER_NULL
        pass_member(tree, node, self.reader.at)
        return 0

    cdef int enter_text(self, MemberTree tree, OpenMember* frame, bint is_plain) except -1:
        """Enter a piece of text. Blanks in front of the first one, and behind the last one, do not belong to it."""
        cdef const uint8_t* begin = self.reader.begin
        cdef bint is_blank = xml_skip_space(self.reader.text, self.reader.text_end) == self.reader.text_end
        cdef int32_t child
        if not frame.has_text:
            if is_blank:
                return 0
            if is_plain:
                begin = xml_skip_space(begin, self.reader.text_end)
            frame.has_text = frame.holds = True
        if frame.node < 0:
            return 0
        child = meet(tree, frame.node, begin, 0)
        if child >= 0:
            tree.members[child].begin = tree.members[child].value = begin
            tree.members[child].end = self.reader.at
            tree.members[child].kind = MEMBER_VALUE
            if not is_blank:
                frame.last_text = child
                frame.ends_plain = is_plain
        pass_member(tree, frame.node, self.reader.at)
        return 0

    cdef void close_element(self, MemberTree tree, OpenMember* parent, OpenMember* frame) noexcept:
        cdef Member* member
        cdef int32_t following
        if frame.last_text >= 0:
            member = &tree.members[frame.last_text]
            while frame.ends_plain and xml_is_space((member.end - 1)[0]):
                member.end -= 1
            following = member.next
            while following >= 0:
                member = &tree.members[following]
                if member.name_length == 0:
                    member.end = member.begin  # blanks, which stay where they are
                following = member.next
        if frame.member >= 0:
            member = &tree.members[frame.member]
            member.last_end = self.reader.begin
            member.end = self.reader.at
            if not frame.holds:
                member.kind = MEMBER_NULL
        if parent.node >= 0:
            pass_member(tree, parent.node, self.reader.at)

    cdef int edit(self, MemberTree tree, int32_t node) except -1:
        cdef Member* element = &tree.members[node]
        cdef int32_t child = element.first_child
        cdef bint in_tag = element.added > 0 and node != 0
        cdef Member* member
        while child >= 0:
            member = &tree.members[child]
            if in_tag and not is_attribute(member):
                in_tag = False
                self.copy_to(element.content)
                self.add_part(element.twin, True)
            if member.mark == MARK_REMOVE:
                self.leave_out(member)
            elif member.mark == MARK_EDIT:
                self.edit(tree, child)
            elif member.mark == MARK_REPLACE:
                self.copy_to(member.value)
                self.write_twin(member.twin)
                self.cursor = member.end
            child = member.next
        if in_tag:
            self.copy_to(element.content)
            self.add_part(element.twin, True)
        if element.added and node != 0:
            self.add_content(element)
        elif element.added and element.count == 0:
            self.copy_to(element.last_end)
            self.add_part(element.twin, False)
        return 0

    cdef int leave_out(self, const Member* member) except -1:
        self.copy_to(member.begin)
        self.cursor = member.end
        if member.parent == 0:
            self.write_empty(member)
        return 0

    cdef int add_content(self, const Member* element) except -1:
        """Add text and elements. An element without an end tag gets one."""
        cdef const uint8_t* tag_end = xml_skip_space(element.content, element.end)
        if tag_end[0] != c"/":
            self.copy_to(element.last_end)
            return self.add_part(element.twin, False)
        self.copy_to(tag_end)
        self.output.append_byte(c">")
        self.add_part(element.twin, False)
        self.output.append(b"</", 2)
        self.output.append(element.name, element.name_length)
        self.cursor = element.end - 1
        return 0

    cdef int add_part(self, int32_t node, bint attributes) except -1:
        """Write the added attributes, or all other added members, of an element of the other tree."""
        cdef int32_t child = self.other.members[node].first_child
        cdef Member* member
        while child >= 0:
            member = &self.other.members[child]
            if member.flags & FLAG_ADDED and is_attribute(member) == attributes:
                if self.adds_null:
                    self.write_null(self.other, child)
                else:
                    self.write_other(child, member.begin)
            child = member.next
        return 0

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        cdef Member* written = &tree.members[member]
        if is_attribute(written):
            self.output.append_byte(c" ")
            self.output.append(written.name + 1, written.name_length - 1)
            return self.output.append(b'=""', 3)
        if written.name_length:
            return self.write_empty(written)
        return 0  # a text that is missing

    cdef int write_empty(self, const Member* element) except -1:
        self.output.append_byte(c"<")
        self.output.append(element.name, element.name_length)
        return self.output.append(b"/>", 2)


cdef inline bint is_attribute(const Member* member) noexcept nogil:
    return member.name_length > 0 and member.name[0] == c"@"
