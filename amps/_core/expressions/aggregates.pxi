# The state of groups of messages: aggregates, and fields outside aggregates (expressions.md §10.12).
#
# A projection's outputs are programs over a *row*. A row has one field for each part of the outputs: an aggregate over
# one argument, or a value of the group's last message. The arguments and the values of the last message are programs
# over a message. Parts with the same text are stored once, and so are arguments that several aggregates share.
#
# A group adds and removes messages. It keeps sums, bags of values and the values of the last message, never a message.
# Its results depend only on the messages in it and on the message added last. Adding a message first completes all
# steps that can fail and then changes the group, so a refused addition or removal changes nothing.
#
# To remove a message, the caller passes its fields again, with the same MessageContext as when it was added.

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport NAN, isnan
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from amps._core.values.fields cimport FieldSet, FieldValues, MessageBuilder, MessageContext, given_up_so_far
from amps._core.expressions.functions cimport set_double, set_integer
from amps._core.expressions.machine cimport BoundProgram
from amps._core.values.value cimport (
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_HAS_TEXT,
    VALUE_NULL,
    VALUE_STRING,
    Value,
    settle,
    to_python,
)

GROUP_BYTES_MAX = 1 << 26
"""Default limit of the bytes that the values kept by one group may take."""

cdef enum:
    ROW_BYTES = 1 << 26            # of text that the outputs may create, besides the text of GROUP_CONCAT

_FUNCTIONS = {
    "ANY": AGGREGATE_ANY,
    "AVG": AGGREGATE_AVG,
    "COUNT": AGGREGATE_COUNT,
    "COUNT_DISTINCT": AGGREGATE_COUNT_DISTINCT,
    "GROUP_CONCAT": AGGREGATE_GROUP_CONCAT,
    "MAX": AGGREGATE_MAX,
    "MIN": AGGREGATE_MIN,
    "STDDEV_POP": AGGREGATE_STDDEV_POP,
    "STDDEV_SAMP": AGGREGATE_STDDEV_SAMP,
    "SUM": AGGREGATE_SUM,
    "UNIQUE": AGGREGATE_UNIQUE,
    None: AGGREGATE_NONE,
}


class GroupTooLarge(Exception):
    """The values of a message do not fit into the group. The group is unchanged.

    The limit covers kept values and their text. Sums have a bounded size: at most about 1 kB for each argument.
    """


cdef int demand_nothing_given_up(uint64_t before) except -1:
    """Raise TimeoutError if an evaluation was given up since `before`.

    The result would depend on the time it took, but a value must be the same when it is added and when it is removed.
    """
    if given_up_so_far() != before:
        raise TimeoutError("working out a projection took too long for this message")
    return 0


cdef inline uint64_t text_bytes(const Value* value) noexcept nogil:
    return value.length if value.kind == VALUE_STRING or value.flags & VALUE_HAS_TEXT else 0


cdef class BoundProjection:

    def __cinit__(self):
        self.arguments = NULL
        self.parts = NULL
        self.changes = NULL
        self.kept_anew = NULL
        self.results = NULL

    def __init__(self, FieldSet fields, parts, outputs, uint64_t limit_bytes=GROUP_BYTES_MAX):
        """fields: the set that messages will be read for; missing fields are added to it.

        parts: for each part, the path by which outputs read it, the name of its function (None for a value of the last
        message), the text of its argument, the program of its argument, the delimiter of GROUP_CONCAT, and whether all
        values of a field are kept. outputs: pairs of a program and whether the field is left out if it is NULL.
        """
        cdef Part* part
        cdef Argument* argument
        cdef uint32_t at
        cdef uint32_t concats = 0
        self.limit_bytes = min(limit_bytes, <uint64_t>1 << 31)
        self.argument_programs = []
        self.kept_programs = []
        self.kept_whole = []
        self.delimiters = []
        self.row_fields = FieldSet()
        self.part_count = <uint32_t>len(parts)
        self.output_count = <uint32_t>len(outputs)
        self.parts = <Part*>PyMem_Calloc(self.part_count + 1, sizeof(Part))
        self.arguments = <Argument*>PyMem_Calloc(self.part_count + 1, sizeof(Argument))
        self.changes = <Change*>PyMem_Calloc(self.part_count + 1, sizeof(Change))
        self.kept_anew = <Kept*>PyMem_Calloc(self.part_count + 1, sizeof(Kept))
        self.results = <Value*>PyMem_Calloc(self.output_count + 1, sizeof(Value))
        if (
            self.parts == NULL
            or self.arguments == NULL
            or self.changes == NULL
            or self.kept_anew == NULL
            or self.results == NULL
        ):
            raise MemoryError()
        sources = {}
        for at, (path, function, text, program, delimiter, whole) in enumerate(parts):
            part = &self.parts[at]
            part.function = _FUNCTIONS[function]
            part.whole = whole
            part.slot = self.row_fields.add(path)
            self.delimiters.append(delimiter)
            key = (part.function == AGGREGATE_NONE, text, whole)
            if part.function == AGGREGATE_NONE:
                if key not in sources:
                    sources[key] = len(self.kept_programs)
                    self.kept_programs.append(program.bind(fields))
                    self.kept_whole.append(whole)
                part.source = sources[key]
                continue
            if key not in sources:
                sources[key] = len(self.argument_programs)
                self.argument_programs.append(program.bind(fields))
            part.source = sources[key]
            argument = &self.arguments[part.source]
            if part.function in (AGGREGATE_SUM, AGGREGATE_AVG):
                argument.sums = True
            elif part.function in (AGGREGATE_STDDEV_POP, AGGREGATE_STDDEV_SAMP):
                argument.sums = True
                argument.squares = True
            elif part.function != AGGREGATE_COUNT:
                argument.bag = True
            if part.function == AGGREGATE_GROUP_CONCAT:
                concats += 1
                argument.delimiter_bytes = max(argument.delimiter_bytes, <uint64_t>len(delimiter))
        self.argument_count = <uint32_t>len(self.argument_programs)
        self.kept_count = <uint32_t>len(self.kept_programs)
        self.outputs = [program.bind(self.row_fields) for program, _ in outputs]
        self.optional = [optional for _, optional in outputs]
        self.row = FieldValues(
            2 * concats * self.limit_bytes + ROW_BYTES, self.limit_bytes // sizeof(Value) + self.part_count + 1
        )

    def __dealloc__(self):
        PyMem_Free(self.parts)
        PyMem_Free(self.arguments)
        PyMem_Free(self.changes)
        PyMem_Free(self.kept_anew)
        PyMem_Free(self.results)

    cdef int evaluate(self, FieldValues values, MessageContext message) except -1:
        """Evaluate the arguments for a message, into `changes`."""
        cdef uint32_t at
        cdef Change* change
        for at in range(self.argument_count):
            change = &self.changes[at]
            (<BoundProgram>self.argument_programs[at]).run(values, message, &change.value)
            change.counts = change.value.kind != VALUE_NULL and change.value.kind != VALUE_CONTAINER
            change.summed = False
            change.is_nan = change.value.kind == VALUE_DOUBLE and isnan(change.value.number.double_)
            change.known = NULL
            change.made = NULL
            if change.counts and self.arguments[at].sums:
                change.summed = term_of(&change.value, &change.term)
        return 0

    cdef int keep(self, uint32_t at, FieldValues values, MessageContext message) except -1:
        """Copy a value of the message, or all values of a field, into `kept_anew`."""
        cdef Kept* kept = &self.kept_anew[at]
        cdef BoundProgram program = <BoundProgram>self.kept_programs[at]
        cdef Value found
        cdef Value* value = &found
        cdef uint32_t number
        cdef uint8_t* text
        cdef int32_t node = -1
        kept.count = 1
        if self.kept_whole[at]:
            if values.slot_count < program.slots_needed:
                raise ValueError("values of fewer fields than the projection was bound to: read the message again")
            node = values.slots[program.slots[0]].first
            kept.count = values.slots[program.slots[0]].count if node >= 0 else 0
            kept.bytes_ = 0
            while node >= 0:
                settle(&values.nodes[node].value, values.arena)
                kept.bytes_ += sizeof(Value) + text_bytes(&values.nodes[node].value)
                node = values.nodes[node].next
            node = values.slots[program.slots[0]].first
        else:
            program.run(values, message, &found)
            kept.bytes_ = sizeof(Value) + text_bytes(&found)
        kept.values = <Value*>malloc(kept.bytes_ + 1)
        if kept.values == NULL:
            raise MemoryError()
        text = <uint8_t*>(kept.values + kept.count)
        for number in range(kept.count):
            if node >= 0:
                value = &values.nodes[node].value
                node = values.nodes[node].next
            kept.values[number] = value[0]
            kept.values[number].text = text
            kept.values[number].length = <uint32_t>text_bytes(value)
            if kept.values[number].length:
                memcpy(text, value.text, kept.values[number].length)
                text += kept.values[number].length
        return 0


cdef class Group:

    def __cinit__(self):
        self.states = NULL
        self.kept = NULL

    def __init__(self, BoundProjection projection):
        self.projection = projection
        self.records = 0
        self.used_bytes = 0
        self.states = <ArgumentState*>PyMem_Calloc(projection.argument_count + 1, sizeof(ArgumentState))
        self.kept = <Kept*>PyMem_Calloc(projection.kept_count + 1, sizeof(Kept))
        if self.states == NULL or self.kept == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef uint32_t at
        if self.states != NULL:
            for at in range(self.projection.argument_count):
                tally_free(&self.states[at].tally)
                bag_free(&self.states[at].bag)
        if self.kept != NULL:
            for at in range(self.projection.kept_count):
                free(self.kept[at].values)
        PyMem_Free(self.states)
        PyMem_Free(self.kept)

    cdef int insert(self, FieldValues values, MessageContext message) except -1:
        cdef BoundProjection projection = self.projection
        cdef uint32_t at
        cdef Change* change
        cdef Argument* argument
        cdef ArgumentState* state
        cdef uint64_t used_bytes = self.used_bytes
        cdef uint64_t given_up = given_up_so_far()
        cdef bint done = False
        projection.evaluate(values, message)
        memset(projection.kept_anew, 0, projection.kept_count * sizeof(Kept))
        try:
            for at in range(projection.kept_count):
                projection.keep(at, values, message)
                used_bytes += projection.kept_anew[at].bytes_
                used_bytes -= self.kept[at].bytes_
            demand_nothing_given_up(given_up)
            for at in range(projection.argument_count):
                change = &projection.changes[at]
                argument = &projection.arguments[at]
                if not change.counts:
                    continue
                if change.summed:
                    tally_reserve(&self.states[at].tally, &change.term, argument.squares)
                if argument.bag and not change.is_nan:
                    change.known = bag_find(&self.states[at].bag, &change.value)
                    if change.known == NULL:
                        change.made = bag_new_node(&change.value)
                        used_bytes += bag_node_bytes(&change.value) + argument.delimiter_bytes
            if used_bytes > projection.limit_bytes:
                raise GroupTooLarge(
                    f"the values of one group take more than {projection.limit_bytes} bytes:"
                    " group by more fields, or aggregate fewer distinct or shorter values"
                )
            done = True
        finally:
            if not done:
                for at in range(projection.argument_count):
                    free(projection.changes[at].made)
                for at in range(projection.kept_count):
                    free(projection.kept_anew[at].values)
        for at in range(projection.argument_count):
            change = &projection.changes[at]
            argument = &projection.arguments[at]
            state = &self.states[at]
            if not change.counts:
                continue
            state.count += 1
            if change.summed:
                tally_change(&state.tally, &change.term, False, argument.squares)
            if not argument.bag:
                continue
            if change.is_nan:
                state.bag.nans += 1
            elif change.known != NULL:
                change.known.count += 1
            else:
                bag_insert(&state.bag, change.made)
        for at in range(projection.kept_count):
            free(self.kept[at].values)
            self.kept[at] = projection.kept_anew[at]
        self.used_bytes = used_bytes
        self.records += 1
        return 0

    cdef int take(self, FieldValues values, MessageContext message) except -1:
        cdef BoundProjection projection = self.projection
        cdef uint32_t at
        cdef Change* change
        cdef Argument* argument
        cdef ArgumentState* state
        cdef uint64_t freed
        cdef uint64_t given_up = given_up_so_far()
        cdef bint known = self.records > 0
        projection.evaluate(values, message)
        demand_nothing_given_up(given_up)
        for at in range(projection.argument_count):
            change = &projection.changes[at]
            argument = &projection.arguments[at]
            state = &self.states[at]
            if not change.counts:
                known = known and state.count < self.records
                continue
            known = known and state.count > 0
            if change.summed:
                known = known and state.tally.numbers > 0 and state.tally.reals >= change.term.real
                tally_reserve(&state.tally, &change.term, argument.squares)
            elif argument.sums:
                known = known and state.count > state.tally.numbers
            if argument.bag and change.is_nan:
                known = known and state.bag.nans > 0
            elif argument.bag:
                change.known = bag_find(&state.bag, &change.value)
                known = known and change.known != NULL
        if not known:
            raise ValueError("a message that is not in the group: remove only added messages, with the same values")
        for at in range(projection.argument_count):
            change = &projection.changes[at]
            argument = &projection.arguments[at]
            state = &self.states[at]
            if not change.counts:
                continue
            state.count -= 1
            if change.summed:
                tally_change(&state.tally, &change.term, True, argument.squares)
            if not argument.bag:
                continue
            if change.is_nan:
                state.bag.nans -= 1
                continue
            freed = bag_take(&state.bag, change.known)
            if freed:
                self.used_bytes -= freed + argument.delimiter_bytes
        self.records -= 1
        return 0

    cdef int result_of(self, const Part* part, bytes delimiter, Value* result) except -1:
        """Set the result of an aggregate. It is valid until the group or the row changes."""
        cdef ArgumentState* state = &self.states[part.source]
        cdef uint64_t distinct = state.bag.distinct + (state.bag.nans > 0)
        result.kind = VALUE_NULL
        result.flags = 0
        if part.function == AGGREGATE_COUNT:
            set_integer(result, <int64_t>state.count)
        elif part.function == AGGREGATE_COUNT_DISTINCT:
            set_integer(result, <int64_t>distinct)
        elif state.count == 0:
            return 0
        elif part.function == AGGREGATE_GROUP_CONCAT:
            bag_concat(&state.bag, delimiter, result, self.projection.row.arena)
        elif part.function in (AGGREGATE_MIN, AGGREGATE_MAX, AGGREGATE_ANY, AGGREGATE_UNIQUE):
            if part.function == AGGREGATE_UNIQUE and distinct != 1:
                return 0
            if state.bag.root == NULL:
                set_double(result, NAN)
            elif part.function == AGGREGATE_MAX:
                result[0] = bag_highest(&state.bag).value
            else:
                result[0] = bag_lowest(&state.bag).value
        elif part.function == AGGREGATE_STDDEV_SAMP and state.count == 1:
            return 0
        elif state.count > state.tally.numbers:
            set_double(result, NAN)
        elif part.function == AGGREGATE_SUM:
            tally_sum(&state.tally, result)
        elif part.function == AGGREGATE_AVG:
            tally_mean(&state.tally, result)
        else:
            tally_deviation(&state.tally, part.function == AGGREGATE_STDDEV_SAMP, result)
        return 0

    cdef Value* work_out(self) except NULL:
        """The values of the outputs, settled. Valid until a group of the projection changes or is evaluated."""
        cdef BoundProjection projection = self.projection
        cdef FieldValues row = projection.row
        cdef Part* part
        cdef Kept* kept
        cdef Value result
        cdef uint32_t at
        cdef uint32_t number
        cdef uint64_t given_up = given_up_so_far()
        row.begin(projection.row_fields)
        for at in range(projection.part_count):
            part = &projection.parts[at]
            if part.function != AGGREGATE_NONE:
                self.result_of(part, <bytes>projection.delimiters[at], &result)
                row.add(part.slot)[0] = result
                continue
            kept = &self.kept[part.source]
            for number in range(kept.count):
                row.add(part.slot)[0] = kept.values[number]
        for at in range(projection.output_count):
            (<BoundProgram>projection.outputs[at]).run(row, None, &projection.results[at])
        demand_nothing_given_up(given_up)
        return projection.results

    def add(self, FieldValues values, MessageContext message=None):
        """Add a message. GroupTooLarge, TimeoutError, MemoryError: it is refused, and nothing has changed."""
        self.insert(values, message)

    def remove(self, FieldValues values, MessageContext message=None):
        """Remove a message that was added before. ValueError, TimeoutError, MemoryError: nothing has changed.

        The values of the last message stay, even if this message is the last one.
        """
        self.take(values, message)

    def values(self):
        """The value of each output: None, bool, int, float or bytes. It is None for a container."""
        cdef Value* results = self.work_out()
        cdef uint32_t at
        made = []
        for at in range(self.projection.output_count):
            value = to_python(&results[at], self.projection.row.arena)
            made.append(None if value is ... else value)
        return made

    def build(self, MessageBuilder builder):
        """The outputs as a message. builder: a MessageBuilder of the destinations of the outputs, in the same order."""
        cdef BoundProjection projection = self.projection
        cdef Value* results
        cdef Value** chosen
        cdef uint32_t at
        if <uint32_t>len(builder.paths) != projection.output_count:
            raise ValueError(f"a builder of {len(builder.paths)} fields for {projection.output_count} outputs")
        chosen = <Value**>PyMem_Calloc(projection.output_count + 1, sizeof(Value*))
        if chosen == NULL:
            raise MemoryError()
        try:
            results = self.work_out()
            for at in range(projection.output_count):
                if results[at].kind == VALUE_CONTAINER:
                    results[at].kind = VALUE_NULL
                if results[at].kind != VALUE_NULL or not projection.optional[at]:
                    chosen[at] = &results[at]
            builder.output.length = 0
            builder.write(chosen, projection.row.arena)
            return (<const char*>builder.output.data)[:builder.output.length] if builder.output.length else b""
        finally:
            PyMem_Free(chosen)
