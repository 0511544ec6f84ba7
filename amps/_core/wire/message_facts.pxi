# The facts about a message that its record holds, for expressions that use them (expressions.md §§10.9 and 10.10).

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from amps._core.values.fields cimport (
    MESSAGE_BOOKMARK,
    MESSAGE_CORRELATION_ID,
    MESSAGE_SIZE,
    MESSAGE_SOW_KEY,
    MESSAGE_SOW_KEY_HASH,
    MESSAGE_TOPIC_NAME,
    MESSAGE_USER,
    MessageContext,
)
from amps._core.values.decimal_digits cimport decimal_digits_write
from amps._core.journal.record cimport (
    RecordHeader,
    RecordState,
    record_correlation_id,
    record_sow_key,
    record_state,
    record_user_id,
)
from amps._core.values.value cimport VALUE_INTEGER, VALUE_NULL, VALUE_RAW_STRING, VALUE_STRING, VALUE_UNSIGNED, Value

cdef enum:
    BOOKMARK_BYTES_MAX = 48
    KEY_BYTES_MAX = 24


cdef int tell_facts(
    MessageContext context, const RecordHeader* record, bytes topic, bint recorded, bint live
) except -1:
    """Replace the facts in the context. They point into the record and the topic's name, which must stay in place.

    recorded: the message has a bookmark. live: it has just been published; without it, the user is not known.
    """
    cdef uint8_t* begin
    cdef uint8_t* at
    cdef const RecordState* state
    cdef Value* fact
    context.forget()
    context.live = live
    context.facts[<int>MESSAGE_SIZE].kind = VALUE_INTEGER
    context.facts[<int>MESSAGE_SIZE].number.integer = record.payload_length
    tell_text(
        &context.facts[<int>MESSAGE_TOPIC_NAME],
        VALUE_STRING,
        <const uint8_t*>PyBytes_AS_STRING(topic),
        <uint32_t>PyBytes_GET_SIZE(topic),
    )
    # As between the quotes of a header, with escapes.
    tell_text(
        &context.facts[<int>MESSAGE_CORRELATION_ID],
        VALUE_RAW_STRING,
        record_correlation_id(record),
        record.correlation_id_length,
    )
    state = record_state(record)
    if record.sow_key_length == 0 and state != NULL:
        begin = context.arena.reserve(KEY_BYTES_MAX)
        tell_text(
            &context.facts[<int>MESSAGE_SOW_KEY], VALUE_STRING, begin, decimal_digits_write(begin, state.key)
        )
    else:
        tell_text(
            &context.facts[<int>MESSAGE_SOW_KEY], VALUE_RAW_STRING, record_sow_key(record), record.sow_key_length
        )
    if state != NULL:
        fact = &context.facts[<int>MESSAGE_SOW_KEY_HASH]
        fact.flags = 0
        if state.key >> 63:
            fact.kind = VALUE_UNSIGNED
            fact.number.unsigned_integer = state.key
        else:
            fact.kind = VALUE_INTEGER
            fact.number.integer = <int64_t>state.key
    if live:
        tell_text(
            &context.facts[<int>MESSAGE_USER], VALUE_RAW_STRING, record_user_id(record), record.user_id_length
        )
    if recorded:
        begin = at = context.arena.reserve(BOOKMARK_BYTES_MAX)
        at += decimal_digits_write(at, record.publisher_id)
        at[0] = c'|'
        at += 1
        at += decimal_digits_write(at, record.sequence)
        at[0] = c'|'
        at += 1
        tell_text(&context.facts[<int>MESSAGE_BOOKMARK], VALUE_STRING, begin, <uint32_t>(at - begin))
    return 0


cdef inline void tell_text(Value* fact, int kind, const uint8_t* text, uint32_t length) noexcept nogil:
    fact.kind = <uint8_t>(kind if length else VALUE_NULL)
    fact.flags = 0
    fact.text = text
    fact.length = length
