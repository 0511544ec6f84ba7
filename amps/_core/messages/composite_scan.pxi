# Fields of composite messages: several messages in one (expressions.md §12.6).
#
# On the wire each declared part consists of its length, in 4 bytes, most significant first, and its bytes. The bytes
# behind the last part are the unparsed payload, which is never read.
#
# Parts are read by the extractors of their types. In composite-local messages, the fields of part n are below the step
# `n`. In composite-global (merged) messages, all parts are read for the same fields, and values of several parts at one
# path are an array. An empty part is an empty message of its type; an empty message has no parts. If a part is missing,
# truncated or cannot be parsed, and a field of it or of a later part is needed, the message cannot be parsed.
#
# A part of a composite-local message is itself a container if it contains any field (§14.4). Its extractor cannot find
# this out, because it does not know the node above its message. So this module inspects the part, as far as its type
# requires.

from libc.stdint cimport UINT64_MAX, int32_t, uint8_t, uint32_t, uint64_t

from amps._core.messages.bflat_wire cimport bflat_field, bflat_head, bflat_values_end
from amps._core.messages.bson_wire cimport bson_document_end, bson_leaf
from amps._core.values.fields cimport Extractor, FieldSet, FieldValues, wanted_child
from amps._core.messages.msgpack_wire cimport (
    MSGPACK_LEAF_DEPTH_MAX,
    MSGPACK_MAP,
    msgpack_find_leaf,
    msgpack_item,
    msgpack_leaf,
    msgpack_read,
)
from amps._core.values.value cimport VALUE_CONTAINER

from amps._core.messages.bflat import BflatExtractor
from amps._core.messages.bson import BsonExtractor
from amps._core.messages.fix import FixExtractor
from amps._core.messages.json import JsonExtractor
from amps._core.messages.msgpack import MsgpackExtractor
from amps._core.messages.protobuf import ProtobufExtractor
from amps._core.messages.struct import BinaryExtractor, StructExtractor
from amps._core.messages.xml import XmlExtractor


cdef extern from "json_text.h" nogil:
    const uint8_t* json_skip_space(const uint8_t* at, const uint8_t* end)
    bint json_has_leaf(const uint8_t* at, const uint8_t* end)


cdef extern from "xml_text.h" nogil:
    const uint8_t* xml_skip_space(const uint8_t* at, const uint8_t* end)


# How a part of a type shows that it contains a field.
cdef enum Evidence:
    IN_BYTES                       # by its number of bytes
    IN_JSON
    IN_XML
    IN_MSGPACK
    IN_BSON
    IN_BFLAT
    IN_PARTS

_EVIDENCE = {
    FixExtractor: IN_BYTES,
    JsonExtractor: IN_JSON,
    XmlExtractor: IN_XML,
    MsgpackExtractor: IN_MSGPACK,
    BsonExtractor: IN_BSON,
    BflatExtractor: IN_BFLAT,
}
_NEVER = (IN_BYTES, UINT64_MAX)       # for types without fields


cdef class CompositeExtractor(Extractor):

    cdef tuple parts
    cdef tuple names               # steps to the parts
    cdef tuple evidence            # by part: Evidence, and the minimum number of bytes
    cdef bint merged

    def __init__(self, parts, merged):
        """parts: an extractor for each part, without other users. merged: composite-global."""
        self.parts = tuple([<Extractor?>part for part in parts])
        self.names = tuple(b"%d" % number for number in range(len(self.parts)))
        self.evidence = tuple([_evidence(part) for part in self.parts])
        self.merged = merged

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + length
        cdef uint32_t wanted = fields.nodes[root].wanted_below - (fields.nodes[root].slot >= 0)
        cdef int32_t node = root
        cdef Part part
        cdef bytes name
        cdef uint32_t number
        if length == 0:
            return True
        for number in range(<uint32_t>len(self.parts)):
            if wanted == 0:
                return True
            if not next_part(&at, end, &part):
                return False
            if not self.merged:
                name = <bytes>self.names[number]
                node = wanted_child(fields, root, <const uint8_t*><const char*>name, <uint32_t>len(name))
                if node < 0:
                    continue
                wanted -= fields.nodes[node].wanted_below
                if fields.nodes[node].slot >= 0 and self.has_field(number, part.data, part.length):
                    values.add(fields.nodes[node].slot).kind = VALUE_CONTAINER
            if not (<Extractor>self.parts[number]).extract(part.data, part.length, fields, node, values):
                return False
        return True

    def messages_cut_short(self):
        return sum([part.messages_cut_short() for part in self.parts])

    cdef bint has_field(self, uint32_t number, const uint8_t* data, uint64_t length) except -1:
        """Whether a part contains a field. Malformed parts are detected by the part's extractor."""
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + length
        cdef msgpack_item item
        cdef bflat_field field
        cdef msgpack_leaf leaf
        cdef const uint8_t* scalar
        cdef int evidence
        cdef uint64_t bytes_min
        evidence, bytes_min = self.evidence[number]
        if length < bytes_min:
            return False
        if evidence == IN_JSON:
            at = json_skip_space(data, end)
            return at < end and at[0] == c"{" and json_has_leaf(at + 1, end)
        if evidence == IN_XML:
            return xml_skip_space(data, end) < end  # a root element
        if evidence == IN_MSGPACK:
            at = msgpack_read(data, end, &item)
            if at != NULL and item.kind == MSGPACK_MAP:
                msgpack_find_leaf(at, end, item.length, True, MSGPACK_LEAF_DEPTH_MAX, &leaf)
                return leaf.place != NULL
            return False
        if evidence == IN_BSON:
            at = bson_document_end(data, end)
            if at == NULL:
                return False
            scalar = bson_leaf(data + 4, at - 1)
            return scalar != NULL and scalar < at - 1
        if evidence == IN_BFLAT:
            while at != NULL and at < end:
                at = bflat_head(at, end, &field)
                if at != NULL:
                    if field.count:
                        return True
                    at = bflat_values_end(&field, at, end)
            return False
        if evidence == IN_PARTS:
            return (<CompositeExtractor>self.parts[number]).has_any_field(data, end)
        return True

    cdef bint has_any_field(self, const uint8_t* at, const uint8_t* end) except -1:
        """Whether any part contains a field."""
        cdef Part part
        cdef uint32_t number
        for number in range(<uint32_t>len(self.parts)):
            if not next_part(&at, end, &part):
                return False
            if self.has_field(number, part.data, part.length):
                return True
        return False


def _evidence(extractor):
    """How a part shows that it contains a field, and the minimum number of bytes."""
    if isinstance(extractor, CompositeExtractor):
        return IN_PARTS, 1
    if isinstance(extractor, ProtobufExtractor):
        return IN_BYTES, 0  # a default takes no bytes
    if isinstance(extractor, StructExtractor):
        return IN_BYTES, extractor.first_field_end
    if isinstance(extractor, BinaryExtractor):
        return _NEVER
    if type(extractor) not in _EVIDENCE:
        raise TypeError(f"_EVIDENCE in messages/composite_scan.pxi lacks {type(extractor).__name__}")
    return _EVIDENCE[type(extractor)], 1
