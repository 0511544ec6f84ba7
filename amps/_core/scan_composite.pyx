"""Fields of composite messages: several messages in one (expressions.md §12.6).

On the wire each declared part is its length, in 4 bytes, the most significant one first, and then its bytes. What
follows the last part is the unparsed payload, which nobody looks into.

Parts are extracted by the extractors of their own types. Kept apart (composite-local), the fields of part n are below
the step `n`; merged (composite-global), all parts are looked at for the same fields, and what several of them have at
one path is an array. An empty part has no fields, an empty message no parts. A part that is missing, cut off or cannot
be parsed makes the message one that cannot be parsed, if anything is wanted of it or of a later one.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.fields cimport Extractor, FieldSet, FieldValues, wanted_child


cdef class CompositeExtractor(Extractor):

    cdef tuple parts
    cdef tuple names               # steps to the parts
    cdef bint merged

    def __init__(self, parts, merged):
        """parts: an extractor for each, which nobody else uses. merged: composite-global."""
        self.parts = tuple([<Extractor?>part for part in parts])
        self.names = tuple(b"%d" % number for number in range(len(self.parts)))
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
            if part.length and not (<Extractor>self.parts[number]).extract(
                part.data, part.length, fields, node, values
            ):
                return False
        return True
