# Fields of messages as Arrow columns, for a DataFrame of payloads.
#
# A FieldColumns is created for a message type and a schema. Each added message is read in one pass, along the tree of
# requested columns. Its values are written directly into buffers that grow in C; no Python object is created for a
# value or a message. `finish` returns the rows as one Arrow array and begins the next batch.
#
# The extractors of filters are not used. They follow the rules of expressions, in which the empty string is null,
# arrays are flat, and text behind the last needed field is ignored. Rows follow the rules of Spark's JSON reader
# (PERMISSIVE). A value that does not fit its type is null, and the rest of the row is not affected. Of a repeated name
# the last value counts. Strings stay strings, also empty ones. A message that is malformed anywhere in its object is a
# row of nulls, and is counted. column_cells.h and column_text.h describe the conversion of values; column_json.h,
# column_tagged.h (FIX, NVFIX) and column_nested.h (MessagePack, BSON) describe the formats.
#
# Intended differences from Spark: numbers, objects and arrays in string columns keep their text; a byte ends at 127;
# timestamps that do not fit are null; numbers with a fraction are valid timestamps, and so are texts with a zone after
# the minutes; texts without a zone are in UTC, independently of the session's zone; base64 may contain line breaks
# anywhere; a repeated name whose last value does not fit is null; control characters are allowed in strings, but single
# quotes around strings are not.
#
# Invariants: between two calls, every column of the root has as many cells as there are rows. A message for which
# there is no room adds none.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset


cdef extern from "column_json.h" nogil:
    enum:
        COLUMN_BOOLEAN
        COLUMN_BYTE
        COLUMN_SHORT
        COLUMN_INT
        COLUMN_LONG
        COLUMN_FLOAT
        COLUMN_DOUBLE
        COLUMN_DECIMAL
        COLUMN_STRING
        COLUMN_BINARY
        COLUMN_DATE
        COLUMN_TIMESTAMP
        COLUMN_ARRAY
        COLUMN_STRUCT
        COLUMN_FULL
    const uint8_t* column_widths
    bint column_begin(column_store* store, column* self, uint32_t child_count)
    bint column_name_member(column* self, uint32_t child, const uint8_t* name, uint32_t length)
    void column_put_null(column_store* store, column* self)
    void column_truncate(column* self, uint32_t length)
    uint64_t column_nulls(const column* self)
    void column_free(column* self)
    bint column_json_message(column_store* store, column* root, const uint8_t* at, const uint8_t* end)


cdef extern from "column_tagged.h" nogil:
    bint column_tagged_message(
        column_store* store, column* root, const uint8_t* at, const uint8_t* end, uint8_t separator, bint numeric_tags
    )


cdef extern from "column_nested.h" nogil:
    bint column_msgpack_message(column_store* store, column* root, const uint8_t* at, const uint8_t* end)
    bint column_bson_message(column_store* store, column* root, const uint8_t* at, const uint8_t* end)


cdef enum Format:
    FORMAT_JSON = 0
    FORMAT_FIX = 1
    FORMAT_NVFIX = 2
    FORMAT_MSGPACK = 3
    FORMAT_BSON = 4


cdef enum:
    DEPTH_MAX = 100                # of a schema: readers are recursive along it


cdef dict FORMATS = {
    "json": FORMAT_JSON,
    "fix": FORMAT_FIX,
    "nvfix": FORMAT_NVFIX,
    "msgpack": FORMAT_MSGPACK,
    "bson": FORMAT_BSON,
}

MESSAGE_TYPES = tuple(FORMATS)

cdef dict FIELD_KINDS = {
    "boolean": COLUMN_BOOLEAN,
    "byte": COLUMN_BYTE,
    "short": COLUMN_SHORT,
    "int": COLUMN_INT,
    "long": COLUMN_LONG,
    "float": COLUMN_FLOAT,
    "double": COLUMN_DOUBLE,
    "decimal": COLUMN_DECIMAL,
    "string": COLUMN_STRING,
    "binary": COLUMN_BINARY,
    "date": COLUMN_DATE,
    "timestamp": COLUMN_TIMESTAMP,
    "array": COLUMN_ARRAY,
    "struct": COLUMN_STRUCT,
}


def arrow_type_of(of):
    """The Arrow type of a column. of: a type as in `FieldColumns`. ValueError: it is not such a type."""
    import pyarrow

    match of:
        case str() if of in FIELD_KINDS and of not in ("decimal", "array", "struct"):
            makers = {
                "boolean": pyarrow.bool_, "byte": pyarrow.int8, "short": pyarrow.int16, "int": pyarrow.int32,
                "long": pyarrow.int64, "float": pyarrow.float32, "double": pyarrow.float64, "string": pyarrow.string,
                "binary": pyarrow.binary, "date": pyarrow.date32,
            }
            return makers[of]() if of in makers else pyarrow.timestamp("us", tz="UTC")
        case ("decimal", int() as precision, int() as scale) if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pyarrow.decimal128(precision, scale)
        case ("array", element):
            return pyarrow.list_(pyarrow.field("element", arrow_type_of(element)))
        case ("struct", members):
            return pyarrow.struct([pyarrow.field(name, arrow_type_of(member)) for name, member in members])
    raise ValueError(f"no type of a column: {of!r}")


cdef object copied(const void* data, uint64_t length):
    import pyarrow

    return pyarrow.py_buffer(PyBytes_FromStringAndSize(<const char*>data, <Py_ssize_t>length))


cdef bint add_message(FieldRows* fields, const uint8_t* payload, uint32_t length) noexcept nogil:
    """Add one row. An empty payload is a row of nulls. So is a malformed one, which is also counted.

    False: there is no room, nothing was added, and `FieldColumns.check` raises the reason.
    """
    cdef column_store* store = &fields.store
    cdef column* root = &fields.root
    cdef uint32_t row = root.length
    cdef const uint8_t* end = payload + length
    cdef bint parsed
    if length == 0:
        column_put_null(store, root)
        parsed = True
    elif fields.format == FORMAT_JSON:
        parsed = column_json_message(store, root, payload, end)
    elif fields.format == FORMAT_MSGPACK:
        parsed = column_msgpack_message(store, root, payload, end)
    elif fields.format == FORMAT_BSON:
        parsed = column_bson_message(store, root, payload, end)
    else:
        parsed = column_tagged_message(store, root, payload, end, fields.separator, fields.format == FORMAT_FIX)
    if not parsed and not store.failure:
        fields.malformed += 1
        column_truncate(root, row)
        column_put_null(store, root)
    if store.failure:
        column_truncate(root, row)
        return False
    return True


cdef class FieldColumns:

    def __cinit__(self):
        memset(&self.fields, 0, sizeof(self.fields))

    def __init__(self, str message_type, fields, uint8_t field_separator=1):
        """message_type: json, fix, nvfix, msgpack or bson. fields: tuples of a name and a type, which is `boolean`,
        `byte`, `short`, `int`, `long`, `float`, `double`, `string`, `binary`, `date`, `timestamp`, or one of
        `("decimal", precision, scale)`, `("array", type)`, `("struct", fields)`. field_separator: of FIX and NVFIX.

        ValueError: another message type, another type of a field, or a repeated name.
        """
        if message_type not in FORMATS:
            raise ValueError(f"no fields of messages of type {message_type}: use one of {', '.join(FORMATS)}")
        self.fields.format = FORMATS[message_type]
        self.fields.separator = field_separator
        self.fields.malformed = 0
        of = ("struct", tuple(fields))
        column_free(&self.fields.root)
        self.begin(&self.fields.root, of, 0)
        self.arrow_type = arrow_type_of(of)

    def __dealloc__(self):
        column_free(&self.fields.root)
        free(self.fields.store.scratch)

    cdef int begin(self, column* made, object of, uint32_t depth) except -1:
        """Initialise a column of a type, with its children."""
        cdef uint32_t child = 0
        cdef bytes name
        kind = of if isinstance(of, str) else of[0]
        if kind not in FIELD_KINDS or (kind in ("decimal", "array", "struct")) == isinstance(of, str):
            raise ValueError(f"no type of a column: {of!r}")
        if depth > DEPTH_MAX:
            raise ValueError(f"types are nested deeper than {DEPTH_MAX} levels")
        made.kind = FIELD_KINDS[kind]
        children = [of[1]] if kind == "array" else [member for _, member in of[1]] if kind == "struct" else []
        if kind == "decimal":
            made.precision, made.scale = of[1:]
        if not column_begin(&self.fields.store, made, <uint32_t>len(children)):
            raise MemoryError()
        for child, member in enumerate(children):
            self.begin(&made.children[child], member, depth + 1)
        if kind == "struct":
            if len({member_name for member_name, _ in of[1]}) < len(children):
                raise ValueError(f"a field occurs twice among {', '.join(member_name for member_name, _ in of[1])}")
            for child, (member_name, _) in enumerate(of[1]):
                name = member_name.encode()
                if not column_name_member(made, child, <const uint8_t*><const char*>name, <uint32_t>len(name)):
                    raise MemoryError()
        return 0

    cdef int check(self) except -1:
        """Raise the error for which the last message could not be added. OverflowError: the batch is full, `finish` it
        first.
        """
        cdef int failure = self.fields.store.failure
        self.fields.store.failure = 0
        if failure == COLUMN_FULL:
            raise OverflowError(f"there is no room for another message in a batch of {self.fields.root.length} rows")
        if failure:
            raise MemoryError()
        return 0

    def add_payload(self, payload):
        """Add one row (`add_message`). OverflowError: the batch is full, `finish` it first."""
        cdef const uint8_t[::1] view = payload
        if view.shape[0] > 0xFFFFFFFF:
            raise ValueError("a payload is up to 4 GiB")
        add_message(&self.fields, &view[0] if view.shape[0] else NULL, <uint32_t>view.shape[0])
        self.check()

    @property
    def malformed(self):
        """Messages that could not be parsed, over all batches."""
        return self.fields.malformed

    @property
    def rows(self):
        """The number of rows in the batch."""
        return self.fields.root.length

    def finish(self):
        """Return the rows as a pyarrow.StructArray with a child for each field, and begin an empty batch."""
        taken = self.take(&self.fields.root, self.arrow_type, True)
        column_truncate(&self.fields.root, 0)
        return taken

    cdef object take(self, column* taken, object arrow_type, bint is_root):
        import pyarrow

        cdef uint64_t cells = taken.length
        cdef uint64_t nulls = 0 if is_root else column_nulls(taken)
        cdef uint32_t child
        buffers = [copied(taken.validity, (cells + 7) // 8) if nulls else None]
        children = []
        if taken.kind == COLUMN_STRUCT:
            for child in range(taken.child_count):
                children.append(self.take(&taken.children[child], arrow_type.field(<int>child).type, False))
        elif taken.kind == COLUMN_BOOLEAN:
            buffers.append(copied(taken.values, (cells + 7) // 8))
        elif taken.offsets == NULL:
            buffers.append(copied(taken.values, cells * column_widths[taken.kind]))
        else:
            buffers.append(copied(taken.offsets, (cells + 1) * sizeof(int32_t)))
            if taken.kind == COLUMN_ARRAY:
                children.append(self.take(taken.children, arrow_type.value_type, False))
            else:
                buffers.append(copied(taken.data, taken.data_length))
        return pyarrow.Array.from_buffers(arrow_type, cells, buffers, null_count=nulls, children=children or None)
