# The machine that evaluates expressions (expressions.md §§4 to 9).
#
# A stack machine. An operand is a value, or a field with all its values. Comparisons and similar operators are TRUE or
# FALSE, never NULL (§14.1); AND, OR and NOT use three-valued logic. The operators are implemented in operators.pxi.
#
# A compiler supplies the code as numbers (code.pxi). The constructor of Program checks the code, so that evaluation
# need not. It fuses frequent sequences (a field compared with a constant, IN with many constants), and puts predicates
# in front of comparisons: instructions that need no stack (predicates.pxi). Evaluation creates Python objects only for
# patterns that need the regular expression engine.

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.math cimport isnan
from libc.stdint cimport int32_t, uint8_t, uint32_t

from amps._core.values.value cimport (
    COMPARE_EQ,
    COMPARE_GE,
    COMPARE_LE,
    TRUTH_FALSE,
    TRUTH_NULL,
    TRUTH_TRUE,
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_NULL,
    Arena,
    ConstantSet,
    Value,
    from_python,
    settle,
    to_number,
    to_python,
    truth_of,
)
from amps._core.values.fields cimport (
    ITSELF,
    FieldNode,
    FieldSet,
    FieldValues,
    MessageContext,
    Operand,
    first_of,
    give_up,
    is_large,
    is_over,
)
from amps._core.expressions.functions cimport (
    Pattern,
    any_like,
    any_member,
    any_pair,
    any_text,
    arithmetic,
    call_function,
    function_entry,
    is_field_match,
    is_null,
    match_pattern,
    negate,
    replace_pattern,
    take_element,
    take_first,
)

cdef enum:
    SET_MEMBERS_MIN = 8            # constants of IN; fewer are compared one by one

_OPERATORS = b"+-*/%"


cdef inline void set_truth(Operand* operand, int truth) noexcept nogil:
    operand.node = ITSELF
    operand.value.flags = 0
    operand.value.kind = VALUE_NULL if truth == TRUTH_NULL else VALUE_BOOLEAN
    operand.value.number.integer = truth == TRUTH_TRUE


cdef inline int truth_of_operand(Operand* operand, FieldNode* nodes, Arena arena) except -1:
    if operand.node == ITSELF and operand.value.kind == VALUE_BOOLEAN:
        return TRUTH_TRUE if operand.value.number.integer else TRUTH_FALSE
    return truth_of(first_of(operand, nodes), arena)


cdef class Program:

    def __cinit__(self):
        self.code = NULL
        self.constants = NULL
        self.expected.texts = NULL
        self.expected.ranges = NULL

    def __init__(self, code, constants, patterns, fields, uint32_t stack_depth, functions=()):
        """patterns: Pattern objects, or pairs of a text and whether it is raw. ValueError: the code cannot be run."""
        cdef uint32_t at
        self.arena = Arena(1 << 31)
        self.sets = []
        self.patterns = tuple(made if isinstance(made, Pattern) else Pattern(*made) for made in patterns)
        self.fields = tuple(fields)
        self.functions = tuple([<UserFunction?>function for function in functions])
        source = [(number & 0xFF, number >> 8) for number in code]
        self.stack_depth = stack_needed(
            source,
            <uint32_t>len(constants),
            <uint32_t>len(self.patterns),
            <uint32_t>len(self.fields),
            <uint32_t>len(self.functions),
        )
        if self.stack_depth > stack_depth:
            raise ValueError(f"code that needs a stack of {self.stack_depth}, not {stack_depth}")
        targets = [False] * len(source)
        for op, argument in source:
            if is_jump(op):
                targets[argument] = True
        self.constants = <Value*>PyMem_Calloc(len(constants) + 1, sizeof(Value))
        predicates_max = sum(op == OP_FIELD for op, _ in source)
        expected_max = min(EXPECTED_MAX * predicates_max, sum(op == OP_CONST for op, _ in source)) + 1
        self.code = <Instruction*>PyMem_Calloc(len(source) + predicates_max, sizeof(Instruction))
        self.expected.texts = <ShortText*>PyMem_Calloc(expected_max, sizeof(ShortText))
        self.expected.ranges = <NumberRange*>PyMem_Calloc(expected_max, sizeof(NumberRange))
        if (
            self.constants == NULL
            or self.code == NULL
            or self.expected.texts == NULL
            or self.expected.ranges == NULL
        ):
            raise MemoryError()
        for at in range(<uint32_t>len(constants)):
            from_python(constants[at], &self.constants[at], self.arena)
        self.assemble(source, targets, constants)

    def __dealloc__(self):
        PyMem_Free(self.code)
        PyMem_Free(self.constants)
        PyMem_Free(self.expected.texts)
        PyMem_Free(self.expected.ranges)

    cdef int assemble(self, list source, list targets, list constants) except -1:
        """Write the code that the machine runs. Instructions that are the target of a jump are not fused."""
        cdef Instruction* made
        cdef uint32_t at = 0
        cdef uint32_t end = <uint32_t>len(source)
        cdef uint32_t run
        cdef int predicate
        cdef ExpectedRoom room = self.expected
        # By position: the number of consecutive constants from here on, of which only the first may be a jump target.
        runs = [0] * (len(source) + 1)
        for back in range(len(source) - 1, -1, -1):
            if source[back][0] == OP_CONST:
                runs[back] = 1 if targets[back + 1] else runs[back + 1] + 1
        places = []
        self.length = 0
        while at < end:
            op, argument = source[at]
            made = &self.code[self.length]
            places.append(self.length)
            run = runs[at]
            predicate = find_predicate(source, at, self.constants, &room, &made.predicate)
            if predicate:
                made.op = <uint8_t>predicate
                made.argument = argument
                self.length += 1
                made += 1
            if (
                op == OP_FIELD
                and runs[at + 1]
                and not targets[at + 1]
                and not targets[at + 2]
                and OP_EQ <= source[at + 2][0] <= OP_GE
            ):
                made.op = OP_COMPARE_FIELD
                made.detail = <uint8_t>(source[at + 2][0] - OP_EQ)
                made.argument = argument
                made.second = source[at + 1][1]
                places.extend((self.length, self.length))
                at += 3
            elif (
                run >= SET_MEMBERS_MIN
                and source[at + run] == (OP_IN, run)
                and not targets[at + run]
                and not targets[at]
            ):
                made.op = OP_IN_SET
                made.argument = <uint32_t>len(self.sets)
                self.sets.append(ConstantSet([constants[source[at + index][1]] for index in range(run)]))
                places.extend([self.length] * run)
                at += run + 1
            else:
                made.op = op
                made.argument = argument
                if OP_EQ <= op <= OP_GE:
                    made.op = OP_COMPARE
                    made.detail = <uint8_t>(op - OP_EQ)
                elif OP_ADD <= op <= OP_MOD:
                    made.op = OP_ARITHMETIC
                    made.detail = _OPERATORS[op - OP_ADD]
                elif op == OP_CALL or op == OP_CALL_USER:
                    made.argument = argument >> 12
                    made.second = argument & 0xFFF
                at += 1
            self.length += 1
        for at in range(self.length):
            if is_jump(self.code[at].op):
                self.code[at].argument = places[self.code[at].argument]
            elif self.code[at].op >= OP_TEXT_IS:
                for answer in range(2):
                    self.code[at].predicate.places[answer] = places[self.code[at].predicate.places[answer]]
        made = <Instruction*>PyMem_Realloc(self.code, self.length * sizeof(Instruction))
        if made == NULL:
            raise MemoryError()
        self.code = made
        return 0

    @property
    def given_up(self):
        """The number of pattern searches that were given up because they took too long."""
        return sum(pattern.given_up for pattern in self.patterns)

    def bind(self, FieldSet fields):
        """Bind the program to a set of fields. Its fields are added to the set."""
        return BoundProgram(self, fields)


cdef class BoundProgram:

    def __cinit__(self):
        self.slots = NULL
        self.stack = NULL

    def __init__(self, Program program, FieldSet fields):
        cdef uint32_t at
        self.program = program
        self.slots_needed = 0
        self.slots = <uint32_t*>PyMem_Malloc((len(program.fields) + 1) * sizeof(uint32_t))
        self.stack = <Operand*>PyMem_Calloc(program.stack_depth + 1, sizeof(Operand))
        if self.slots == NULL or self.stack == NULL:
            raise MemoryError()
        for at in range(<uint32_t>len(program.fields)):
            self.slots[at] = fields.add(program.fields[at])
            self.slots_needed = max(self.slots_needed, self.slots[at] + 1)

    def __dealloc__(self):
        PyMem_Free(self.slots)
        PyMem_Free(self.stack)

    cdef int run(self, FieldValues values, MessageContext message, Value* result) except -1:
        """Evaluate the expression. The result is settled, and valid until the values are read again."""
        cdef Value* made
        self.step_through(values, message)
        made = first_of(&self.stack[0], values.nodes)
        settle(made, values.arena)
        result[0] = made[0]
        return 0

    cdef bint is_match(self, FieldValues values, MessageContext message) except -1:
        self.step_through(values, message)
        return truth_of_operand(&self.stack[0], values.nodes, values.arena) == TRUTH_TRUE

    cdef int step_through(self, FieldValues values, MessageContext message) except -1:
        """Run until END. The result is the only operand on the stack."""
        cdef FieldNode* nodes = values.nodes
        cdef Arena arena = values.arena
        cdef Program program = self.program
        cdef Instruction* instruction = program.code
        cdef int32_t node
        cdef Operand* top = self.stack - 1
        cdef Operand* base
        cdef bint large = is_large()
        cdef bint found
        cdef int truth
        cdef int outcome
        cdef int op
        cdef uint32_t at
        if values.slot_count < self.slots_needed:
            raise ValueError("values of fewer fields than the program was bound to: read the message again")
        while True:
            op = instruction.op
            if large and is_over():
                give_up()
                set_truth(&self.stack[0], TRUTH_NULL)
                return 0
            if op >= OP_TEXT_IS:
                node = values.slots[self.slots[instruction.argument]].first
                truth = TRUTH_FALSE
                if node >= 0:
                    truth = UNDECIDED
                    if nodes[node].next < 0:
                        truth = decide(op, &instruction.predicate, &nodes[node].value, arena)
                    if truth == UNDECIDED:
                        instruction += 1
                        continue
                outcome = instruction.predicate.outcomes[truth]
                instruction = program.code + instruction.predicate.places[truth]
                if outcome != GOES_ON:
                    top += 1
                    set_truth(top, outcome)
                    if instruction.op == OP_END:
                        return 0
                continue
            if op == OP_COMPARE_FIELD:
                top += 1
                found = is_field_match(
                    values.slots[self.slots[instruction.argument]].first,
                    &program.constants[instruction.second],
                    instruction.detail,
                    nodes,
                    arena,
                )
                set_truth(top, found)
            elif op == OP_AND_JUMP:
                truth = truth_of_operand(top, nodes, arena)
                if truth == TRUTH_TRUE:
                    top -= 1
                else:
                    set_truth(top, truth)
                    instruction = program.code + instruction.argument
                    continue
            elif op == OP_OR_JUMP:
                truth = truth_of_operand(top, nodes, arena)
                if truth == TRUTH_FALSE:
                    top -= 1
                else:
                    set_truth(top, truth)
                    instruction = program.code + instruction.argument
                    continue
            elif op == OP_JUMP:
                instruction = program.code + instruction.argument
                continue
            elif op == OP_JUMP_UNLESS_TRUE:
                truth = truth_of_operand(top, nodes, arena)
                top -= 1
                if truth != TRUTH_TRUE:
                    instruction = program.code + instruction.argument
                    continue
            elif op == OP_TRUTH:
                set_truth(top, truth_of_operand(top, nodes, arena))
            elif op == OP_NOT:
                truth = truth_of_operand(top, nodes, arena)
                set_truth(
                    top, TRUTH_NULL if truth == TRUTH_NULL else TRUTH_FALSE if truth == TRUTH_TRUE else TRUTH_TRUE
                )
            elif op == OP_FIELD:
                top += 1
                top.node = values.slots[self.slots[instruction.argument]].first
                top.value.kind = VALUE_NULL
                top.value.flags = 0
            elif op == OP_CONST:
                top += 1
                top.node = ITSELF
                top.value = program.constants[instruction.argument]
            elif op == OP_COMPARE:
                top -= 1
                set_truth(top, any_pair(top, top + 1, instruction.detail, nodes, arena))
            elif op == OP_ELEMENT:
                take_element(top, instruction.argument, nodes)
            elif op == OP_IN_SET:
                set_truth(
                    top, any_member(top, <ConstantSet>program.sets[instruction.argument], nodes, arena)
                )
            elif op == OP_LIKE:
                set_truth(top, any_like(top, <Pattern>program.patterns[instruction.argument], nodes, arena))
            elif op == OP_IS_NULL:
                set_truth(top, is_null(top, nodes, arena))
            elif op == OP_ARITHMETIC:
                top -= 1
                take_first(top, nodes)
                take_first(top + 1, nodes)
                to_number(&top.value, arena)
                to_number(&top[1].value, arena)
                arithmetic(<char>instruction.detail, &top.value, &top[1].value, &top.value)
            elif op == OP_NEG:
                take_first(top, nodes)
                to_number(&top.value, arena)
                negate(&top.value)
            elif op == OP_POS:
                take_first(top, nodes)
                to_number(&top.value, arena)
            elif op == OP_BETWEEN:
                top -= 2
                found = any_pair(top, top + 1, COMPARE_GE, nodes, arena)
                set_truth(top, found and any_pair(top, top + 2, COMPARE_LE, nodes, arena))
            elif op == OP_IN or op == OP_BEGINS or op == OP_ENDS:
                base = top - instruction.argument
                found = False
                for at in range(1, instruction.argument + 1):
                    if op == OP_IN:
                        found = any_pair(base, base + at, COMPARE_EQ, nodes, arena)
                    else:
                        found = any_text(base, base + at, op == OP_ENDS, nodes, arena)
                    if found:
                        break
                top = base
                set_truth(top, found)
            elif op == OP_IS_NAN:
                take_first(top, nodes)
                settle(&top.value, arena)
                set_truth(top, top.value.kind == VALUE_DOUBLE and isnan(top.value.number.double_))
            elif op == OP_CALL:
                top -= <int32_t>instruction.argument - 1
                call_function(
                    function_entry(instruction.second),
                    top,
                    instruction.argument,
                    values,
                    message,
                    &top.value,
                )
                top.node = ITSELF
            elif op == OP_CALL_USER:
                top -= <int32_t>instruction.argument - 1
                (<UserFunction>program.functions[instruction.second]).call(
                    top, instruction.argument, values, &top.value
                )
                top.node = ITSELF
            elif op == OP_REGEXP_MATCH:
                match_pattern(<Pattern>program.patterns[instruction.argument], top, nodes, arena)
            elif op == OP_REGEXP_REPLACE:
                top -= 1
                replace_pattern(<Pattern>program.patterns[instruction.argument], top, nodes, arena)
            else:
                return 0
            instruction += 1

    def evaluate(self, FieldValues values, MessageContext message=None):
        """The value as None, bool, int, float or bytes. It is None for a container."""
        cdef Value result
        self.run(values, message, &result)
        return None if result.kind == VALUE_CONTAINER else to_python(&result, values.arena)

    def matches(self, FieldValues values, MessageContext message=None):
        """Whether the value is true."""
        return bool(self.is_match(values, message))
