# The fields that the server computes for a message (sow.md §15; expressions.md §11).
#
# A stage is a list of constructors: `expression AS /destination`. All of them see the message as it entered the stage;
# a value with HINT SET_CURRENT is also seen by later ones. The results are written into the message, which keeps
# everything else. A result that is NULL is written as NULL, or, with HINT OPTIONAL, its field is left out, also if the
# message had it. A result that is a container has no value of its own, and counts as NULL.
#
# With `sides`, the expressions are about two messages: the incoming one and the stored record, NULL without a record.
# Both are read into one set of values, each below a step of its own. A stored record that cannot be parsed counts as
# absent: it was stored when less of it was read.
#
# A message that cannot be parsed, or takes too much memory or time, has no result: what was written of it is taken
# back. A pattern that is given up would otherwise leave a wrong value in the record, for ever.

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc

from amps._core.expressions.machine cimport BoundProgram
from amps._core.values.fields cimport (
    ByteBuffer,
    FieldSet,
    FieldSlot,
    FieldValues,
    MessageContext,
    begin_message,
    end_message,
    given_up_so_far,
)
from amps._core.values.value cimport VALUE_CONTAINER, VALUE_NULL, Value


cdef class FieldStage:

    def __cinit__(self):
        self.optional = NULL
        self.effects = NULL
        self.results = NULL
        self.written = NULL

    def __init__(self, constructors, message_type, tuple sides=(), MessageContext context=None):
        """constructors: at least one `amps.expressions.FieldConstructor`. message_type: an `amps.messages.MessageType`.

        sides: the first steps of all fields of the current and of the previous message, in this order; () if the
        expressions are about one message. Raises ValueError if the type cannot hold or write the fields.
        """
        cdef uint32_t at
        constructors = tuple(constructors)
        self.context = MessageContext() if context is None else context
        self.count = <uint32_t>len(constructors)
        self.fields = FieldSet()
        self.values = FieldValues()
        self.programs = [made.expression.program.bind(self.fields) for made in constructors]
        self.extractor = message_type.extractor()
        self.previous_extractor = None
        self.builder = message_type.builder([made.destination for made in constructors])
        self.current_node = 0
        self.previous_node = -1
        if sides:
            self.current_node, self.previous_node = (
                self.fields.child(0, <const uint8_t*><const char*>(<bytes>side), <uint32_t>len(side)) for side in sides
            )
        strange = [path for path in self.fields.paths if sides and path[0] not in sides]
        if strange:
            raise ValueError(f"fields of neither message: {strange}")
        self.reads_previous = self.previous_node >= 0
        if self.reads_previous:
            self.previous_extractor = message_type.extractor()
        self.optional = <uint8_t*>calloc(self.count + 1, sizeof(uint8_t))
        self.results = <Value*>calloc(self.count + 1, sizeof(Value))
        self.written = <Value**>calloc(self.count + 1, sizeof(Value*))
        if self.optional == NULL or self.results == NULL or self.written == NULL:
            raise MemoryError()
        for at in range(self.count):
            hints = {hint.name for hint in constructors[at].hints}
            self.optional[at] = "OPTIONAL" in hints
            if "SET_CURRENT" in hints:
                self._add_effects(at, sides[:1] + constructors[at].destination)

    def __dealloc__(self):
        free(self.optional)
        free(self.effects)
        free(self.results)
        free(self.written)

    def _add_effects(self, uint32_t constructor, path):
        """Note what a value at a path does to the fields that expressions read. Subscripts in these do not count."""
        cdef Effect* grown
        for slot, read in enumerate(self.fields.paths):
            names = tuple([step for step in read if not isinstance(step, int)])
            shorter = min(len(names), len(path))
            if names[:shorter] != path[:shorter]:
                continue
            grown = <Effect*>realloc(self.effects, (self.effect_count + 1) * sizeof(Effect))
            if grown == NULL:
                raise MemoryError()
            self.effects = grown
            grown[self.effect_count].constructor = constructor
            grown[self.effect_count].slot = slot
            if len(names) == len(path):
                grown[self.effect_count].kind = EFFECT_SET
            else:
                grown[self.effect_count].kind = EFFECT_CLEAR if len(names) > len(path) else EFFECT_CONTAIN
            self.effect_count += 1

    cdef bint run(
        self, const uint8_t* message, uint64_t length, const uint8_t* previous, uint64_t previous_length,
        ByteBuffer output
    ) except -1:
        """Append the message with the computed fields. previous: the stored record; NULL: there is none.

        False: the message cannot be parsed, or takes too much memory or time; nothing is appended.
        """
        cdef uint64_t before = output.length
        cdef uint64_t given_up = given_up_so_far()
        cdef bint done = False
        begin_message(length + previous_length)
        try:
            if self.compute(message, length, previous, previous_length):
                self.builder.output = output
                done = self.builder.write_merged(message, length, self.written, self.values.arena)
            if given_up_so_far() != given_up:
                done = False
                self.exhausted += 1
            elif not done:
                self.unreadable += 1
        except MemoryError:
            done = False
            self.exhausted += 1
        finally:
            end_message()
            if not done:
                output.length = before
        return done

    cdef bint compute(
        self, const uint8_t* message, uint64_t length, const uint8_t* previous, uint64_t previous_length
    ) except -1:
        """Set `written`. False: the message cannot be parsed."""
        cdef uint32_t next_effect = 0
        cdef uint32_t at
        cdef Value* result
        self.values.begin(self.fields)
        if self.current_node >= 0:
            if not self.extractor.extract(message, length, self.fields, self.current_node, self.values):
                return False
        if previous != NULL and self.reads_previous:
            self.read_previous(previous, previous_length)
        for at in range(self.count):
            result = &self.results[at]
            (<BoundProgram>self.programs[at]).run(self.values, self.context, result)
            if result.kind == VALUE_CONTAINER:
                result.kind = VALUE_NULL
            self.written[at] = NULL if self.optional[at] and result.kind == VALUE_NULL else result
            self.apply_effects(&next_effect, at)
        return True

    cdef int read_previous(self, const uint8_t* previous, uint64_t length) except -1:
        cdef uint32_t before = self.values.node_count
        if not self.previous_extractor.extract(previous, length, self.fields, self.previous_node, self.values):
            self.values.cut(self.fields, self.previous_node, before)
        return 0

    cdef int apply_effects(self, uint32_t* next_effect, uint32_t constructor) except -1:
        """Let later constructors see the value of one with HINT SET_CURRENT."""
        cdef FieldValues values = self.values
        cdef Value* written = self.written[constructor]
        cdef Effect* effect
        cdef FieldSlot* slot
        while next_effect[0] < self.effect_count and self.effects[next_effect[0]].constructor == constructor:
            effect = &self.effects[next_effect[0]]
            next_effect[0] += 1
            if effect.kind == EFFECT_CONTAIN and written == NULL:
                continue
            slot = &values.slots[effect.slot]
            slot.first = -1
            slot.count = 0
            if effect.kind == EFFECT_SET and written != NULL:
                values.add(<int32_t>effect.slot)[0] = written[0]
            elif effect.kind == EFFECT_CONTAIN:
                values.add(<int32_t>effect.slot).kind = VALUE_CONTAINER
        return 0

    def apply(self, message not None, previous=None):
        """The message with the computed fields. previous: the stored record, if there is one.

        None: the message cannot be parsed, or takes too much memory or time.
        """
        cdef const uint8_t[::1] view = message
        cdef const uint8_t[::1] stored = b"" if previous is None else previous
        cdef const uint8_t* data = <const uint8_t*>b""
        cdef const uint8_t* stored_data = NULL
        cdef ByteBuffer output = ByteBuffer()
        if view.shape[0]:
            data = &view[0]
        if previous is not None:
            stored_data = &stored[0] if stored.shape[0] else <const uint8_t*>b""
        if not self.run(data, <uint64_t>view.shape[0], stored_data, <uint64_t>stored.shape[0], output):
            assert output.length == 0  # nothing is appended
            return None
        return (<const char*>output.data)[:output.length] if output.length else b""
