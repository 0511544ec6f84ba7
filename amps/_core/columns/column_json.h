/* Read a JSON message into columns, in one pass from its first byte to the end of the object.
 *
 * Members without a column are skipped, but must be well-formed (RFC 8259), because a message counts as a whole or not
 * at all. Of a repeated name the last value counts, as in Spark and most readers. Bytes behind the object are ignored.
 * Beyond the RFC, the tokens NaN, Infinity, -Infinity and +INF, -INF are numbers, as Python and Spark write and read
 * them. The depth of recursion is that of the columns.
 *
 * Messages of one publisher are usually alike. So each object is read with the expectation that it has the same members
 * as the previous one, in the same order and with the same blanks. Where that is true, a name takes one comparison.
 * Most values are plain: a short integer, a short text without escapes, or null, followed directly by a comma or
 * closing brace. These are tried first, while so many bytes remain that no length must be checked. A failed try only
 * costs time: the value is then read again by the general rules, and a cell that the try has put is removed. */
#ifndef AMPS_COLUMN_JSON_H
#define AMPS_COLUMN_JSON_H

#include "column_cells.h"
#include "json_text.h"

enum {
    COLUMN_JSON_DEPTH_MAX = 1024, /* of skipped values */
    COLUMN_JSON_PLAIN_BYTES = 18, /* maximum of a plain value: a quote, a vector of text and quote, the next byte */
    COLUMN_JSON_NEAR_BYTES = COLUMN_EXPECTED_BYTES + COLUMN_JSON_PLAIN_BYTES
};

static uint32_t column_json_unit(const uint8_t *at) {
    uint32_t unit = 0;
    for (int place = 0; place < 4; place++) {
        uint8_t byte = at[place];
        unit = unit << 4 | (uint32_t)(byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10);
    }
    return unit;
}

/* Resolve the escapes of the text of a string; all escapes are valid. out: as much room as the text. Half of a
 * surrogate pair becomes a question mark, as in Java. */
static uint32_t column_json_unescape(const uint8_t *at, const uint8_t *end, uint8_t *out) {
    uint8_t *to = out;
    while (at < end) {
        const uint8_t *stop = json_string_stop(at, end);
        uint32_t unit;
        memcpy(to, at, (size_t)(stop - at));
        to += stop - at;
        if (stop == end) break;
        at = stop + 2;
        switch (stop[1]) {
        case 'b': *to++ = '\b'; continue;
        case 'f': *to++ = '\f'; continue;
        case 'n': *to++ = '\n'; continue;
        case 'r': *to++ = '\r'; continue;
        case 't': *to++ = '\t'; continue;
        case 'u': break;
        default: *to++ = stop[1]; continue;
        }
        unit = column_json_unit(at);
        at += 4;
        if (unit < 0x80) *to++ = (uint8_t)unit;
        else if (unit < 0x800) {
            *to++ = (uint8_t)(0xC0 | unit >> 6);
            *to++ = (uint8_t)(0x80 | (unit & 0x3F));
        } else if (unit >= 0xD800 && unit < 0xE000) {
            uint32_t low = 0;
            if (unit < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') low = column_json_unit(at + 2);
            if (low < 0xDC00 || low > 0xDFFF) {
                *to++ = '?';
                continue;
            }
            at += 6;
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            *to++ = (uint8_t)(0xF0 | unit >> 18);
            *to++ = (uint8_t)(0x80 | (unit >> 12 & 0x3F));
            *to++ = (uint8_t)(0x80 | (unit >> 6 & 0x3F));
            *to++ = (uint8_t)(0x80 | (unit & 0x3F));
        } else {
            *to++ = (uint8_t)(0xE0 | unit >> 12);
            *to++ = (uint8_t)(0x80 | (unit >> 6 & 0x3F));
            *to++ = (uint8_t)(0x80 | (unit & 0x3F));
        }
    }
    return (uint32_t)(to - out);
}

/* Read the string whose content begins at `at`. Return the position behind its quote; NULL: malformed. */
static inline const uint8_t *column_json_string(
    column_store *store, const uint8_t *at, const uint8_t *end, const uint8_t **text, uint32_t *length
) {
    const uint8_t *stop = json_string_stop(at, end);
    uint8_t *made;
    *text = at;
    if (stop == end) return NULL;
    if (*stop == '"') {
        *length = (uint32_t)(stop - at);
        return stop + 1;
    }
    stop = json_skip_string(stop, end);
    if (!stop || !json_escapes_are_valid(at, stop - 1)) return NULL;
    made = column_scratch(store, (uint64_t)(stop - at));
    if (!made) return NULL;
    *text = made;
    *length = column_json_unescape(at, stop - 1, made);
    return stop;
}

/* The position behind a number that RFC 8259 does not define; NULL: it is not such a number. */
static const uint8_t *column_json_named_number(const uint8_t *at, const uint8_t *end) {
    static const char *const names[] = {"NaN", "Infinity", "-Infinity", "+Infinity", "-INF", "+INF"};
    for (uint32_t name = 0; name < sizeof names / sizeof *names; name++) {
        size_t length = strlen(names[name]);
        if ((size_t)(end - at) >= length && memcmp(at, names[name], length) == 0) return at + length;
    }
    return NULL;
}

/* For the word in which a number begins: the top bit of each byte that cannot continue it, and possibly of bytes above
 * the first one. Such a byte is not a digit, or follows a leading zero. */
static inline uint64_t column_json_integer_stops(uint64_t word) {
    return number_others(word) | (((word & 0xFF) - 1) & 0x8000);
}

/* Read an integer of up to seven characters, as most numbers are, from one word; all its bytes must exist. Return the
 * position behind it. The minus sign takes no branch, because it could not be predicted. NULL: it is another value. It
 * is also another value if there is neither a comma nor a closing brace at the returned position. */
static inline const uint8_t *column_json_short_integer(const uint8_t *at, int64_t *integer) {
    uint64_t word = number_word(at) ^ NUMBER_ZEROS;
    uint64_t negative = (uint8_t)word == ('-' ^ '0');
    uint64_t stops = column_json_integer_stops(word) ^ negative << 7;
    uint32_t bits;
    if (!stops || stops & 0x80 || (uint16_t)word == ('-' ^ '0')) return NULL; /* the last condition is for "-0" */
    bits = (uint32_t)__builtin_ctzll(stops) & 56;
    at += bits / 8;
    if (at[-1] == '-') return NULL;
    *integer = (int64_t)number_of_eight((word - negative * ('-' ^ '0')) << (64 - bits));
    if (negative) *integer = -*integer;
    return at;
}

/* The position behind a string, number or literal without a column; NULL: malformed. */
static inline const uint8_t *column_json_skip_scalar(const uint8_t *at, const uint8_t *end) {
    const uint8_t *stop;
    if (*at == '"') {
        stop = json_string_stop(at + 1, end);
        if (stop == end) return NULL;
        if (*stop == '"') return stop + 1;
        stop = json_skip_string(stop, end);
        return stop && json_escapes_are_valid(at + 1, stop - 1) ? stop : NULL;
    }
    if (end - at >= 4 && (memcmp(at, "true", 4) == 0 || memcmp(at, "null", 4) == 0)) return at + 4;
    if (end - at >= 5 && memcmp(at, "false", 5) == 0) return at + 5;
    stop = json_number_stop(at, end);
    return stop ? stop : column_json_named_number(at, end);
}

/* The position of the value of the member whose name is at `at`; NULL: malformed. */
static const uint8_t *column_json_skip_name(const uint8_t *at, const uint8_t *end) {
    if (*at != '"') return NULL;
    at = column_json_skip_scalar(at, end);
    if (!at) return NULL;
    at = json_skip_space(at, end);
    if (at == end || *at != ':') return NULL;
    at = json_skip_space(at + 1, end);
    return at == end ? NULL : at;
}

/* The position behind a value without a column; NULL: malformed, or nested deeper than COLUMN_JSON_DEPTH_MAX. */
static const uint8_t *column_json_skip(const uint8_t *at, const uint8_t *end) {
    uint64_t objects[COLUMN_JSON_DEPTH_MAX / 64]; /* a bit for each level: an object, or an array */
    uint32_t depth = 0;
    for (;;) {
        int is_object = *at == '{', opened = is_object || *at == '[';
        if (opened) {
            if (depth == COLUMN_JSON_DEPTH_MAX) return NULL;
            objects[depth / 64] &= ~((uint64_t)1 << depth % 64);
            objects[depth / 64] |= (uint64_t)is_object << depth % 64;
            depth++;
            at++;
        } else {
            at = column_json_skip_scalar(at, end);
            if (!at || depth == 0) return at;
        }
        for (;;) {
            is_object = objects[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
            at = json_skip_space(at, end);
            if (at == end) return NULL;
            if (*at != (is_object ? '}' : ']')) break;
            at++;
            opened = 0;
            if (--depth == 0) return at;
        }
        if (!opened) {
            if (*at != ',') return NULL;
            at = json_skip_space(at + 1, end);
            if (at == end) return NULL;
        }
        if (is_object) {
            at = column_json_skip_name(at, end);
            if (!at) return NULL;
        }
    }
}

static const uint8_t *column_json_object(column_store *store, column *self, const uint8_t *at, const uint8_t *end);
static const uint8_t *column_json_array(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, int *put
);

/* Read a value and put it at the end of a column if it fits. Return the position behind it; NULL: malformed. */
static const uint8_t *column_json_value(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, int *put
) {
    column_cell cell;
    const uint8_t *begin = at;
    *put = 0;
    cell.kind = CELL_NULL;
    switch (*at) {
    case '"':
        cell.kind = CELL_TEXT;
        at = column_json_string(store, at + 1, end, &cell.text, &cell.length);
        break;
    case '{':
        if (self->kind == COLUMN_STRUCT) {
            *put = 1;
            return column_json_object(store, self, at, end);
        }
        cell.kind = CELL_RAW;
        at = column_json_skip(at, end);
        break;
    case '[':
        if (self->kind == COLUMN_ARRAY) return column_json_array(store, self, at + 1, end, put);
        cell.kind = CELL_RAW;
        at = column_json_skip(at, end);
        break;
    case 't': case 'f': case 'n':
        at = column_json_skip_scalar(at, end);
        if (*begin != 'n') {
            cell.kind = CELL_BOOLEAN;
            cell.integer = *begin == 't';
        }
        break;
    default:
        cell.kind = CELL_NUMBER;
        at = json_number_stop(at, end);
        if (!at) at = column_json_named_number(begin, end);
    }
    if (!at) return NULL;
    if (cell.kind == CELL_NUMBER || cell.kind == CELL_RAW) {
        cell.text = begin;
        cell.length = (uint32_t)(at - begin);
    }
    *put = column_put(store, self, &cell, 1);
    return at;
}

/* The same as column_json_skip_plain, for values that are neither a short integer nor a string. */
static __attribute__((noinline)) const uint8_t *column_json_skip_rarer(const uint8_t *at, const uint8_t *end) {
    const uint8_t *stop;
    if (memcmp(at, "null", 4) == 0) return at + 4;
    stop = json_number_stop(at, end);
    return stop == end ? NULL : stop;
}

/* The position behind a value without a column, if it is plain or a number. COLUMN_JSON_PLAIN_BYTES bytes must exist.
 * NULL, or a position with neither a comma nor a closing brace: it is another value. */
static inline const uint8_t *column_json_skip_plain(const uint8_t *at, const uint8_t *end) {
    uint64_t word = number_word(at) ^ NUMBER_ZEROS, stops = column_json_integer_stops(word);
    if (!(stops & 0x80)) {
        if (stops) {
            const uint8_t *stop = at + (uint32_t)__builtin_ctzll(stops) / 8;
            if (*stop == ',') return stop;
        }
    } else if ((uint8_t)word == ('"' ^ '0')) {
        const uint8_t *stop = json_string_stop(at + 1, end);
        return end - stop > 1 && *stop == '"' ? stop + 1 : NULL;
    }
    return column_json_skip_rarer(at, end);
}

/* Put a plain value into its column as the cell of the row, and return the position behind it. COLUMN_JSON_PLAIN_BYTES
 * bytes must exist. NULL, or a position with neither a comma nor a closing brace: it is another value, and the caller
 * removes a cell that was put. */
static inline const uint8_t *column_json_plain_value(
    column_store *store, column *self, uint32_t row, const uint8_t *at
) {
    if (self->length != row) return NULL; /* the name is repeated */
    assert(row < self->capacity);
    switch (self->kind) {
    case COLUMN_BYTE: case COLUMN_SHORT: case COLUMN_INT: case COLUMN_LONG: {
        int64_t integer;
        const uint8_t *stop = column_json_short_integer(at, &integer);
        if (!stop) break;
        if (self->kind == COLUMN_INT) {
            int32_t half = (int32_t)integer;
            column_close_fixed(self, &half, 4);
        } else if (self->kind == COLUMN_LONG) column_close_fixed(self, &integer, 8);
        else if (!column_put_integer(store, self, integer)) return NULL;
        return stop;
    }
#if defined(__SSE2__)
    case COLUMN_STRING:
        if (*at == '"' && self->data_capacity - self->data_length >= JSON_VECTOR_BYTES) {
            uint64_t begin = self->data_length, length;
            __m128i bytes = _mm_loadu_si128((const __m128i *)(at + 1));
            __m128i escapes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
            uint32_t quotes = json_equal(bytes, '"');
            uint32_t others = (uint32_t)_mm_movemask_epi8(_mm_or_si128(bytes, escapes)); /* and not ASCII */
            if (!quotes || (others & (quotes ^ (quotes - 1)))) return NULL;
            length = (uint32_t)__builtin_ctz(quotes);
            _mm_storeu_si128((__m128i *)(self->data + begin), bytes);
            column_close_bytes(self, begin + length);
            return at + length + 2;
        }
        break;
#endif
    default:
        break;
    }
    if (memcmp(at, "null", 4) != 0) return NULL;
    column_put_null(store, self);
    return at + 4;
}

/* Read the elements of an array that begin at `at`. An element that does not fit makes the array null; null always
 * fits. */
static const uint8_t *column_json_array(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, int *put
) {
    column *elements = self->children;
    int fits = 1, element_put;
    assert(store->failure || elements->length == (uint32_t)self->offsets[self->length]);
    *put = 0;
    at = json_skip_space(at, end);
    if (at == end) return NULL;
    if (*at != ']') {
        for (;;) {
            int is_null = *at == 'n';
            if (fits) {
                at = column_json_value(store, elements, at, end, &element_put);
                if (at && !element_put) {
                    column_put_null(store, elements);
                    fits = is_null;
                }
            } else at = column_json_skip(at, end);
            if (!at) return NULL;
            at = json_skip_space(at, end);
            if (at == end) return NULL;
            if (*at == ']') break;
            if (*at != ',') return NULL;
            at = json_skip_space(at + 1, end);
            if (at == end) return NULL;
        }
    }
    if (fits) *put = column_close_array(store, self);
    else column_truncate(self, self->length);
    return at + 1;
}

#if defined(__SSE2__)
static inline int column_json_is_half_expected(const column_expected *expected, const uint8_t *at, int half) {
    __m128i there = _mm_loadu_si128((const __m128i *)at + half);
    __m128i wanted = _mm_load_si128((const __m128i *)expected->text + half);
    return (~(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(there, wanted)) & expected->bits[half]) == 0;
}
#endif

/* Whether a member begins as expected. COLUMN_EXPECTED_BYTES bytes and one more must exist. */
static inline int column_json_is_expected(const column_expected *expected, const uint8_t *at) {
#if defined(__SSE2__)
    return column_json_is_half_expected(expected, at, 0) &&
           (expected->length <= JSON_VECTOR_BYTES || column_json_is_half_expected(expected, at, 1));
#else
    return memcmp(at, expected->text, expected->length) == 0;
#endif
}

/* The same near the end of the message, where fewer bytes may exist. At least one byte must follow. */
static __attribute__((noinline)) int column_json_is_expected_last(
    const column_expected *expected, const uint8_t *at, const uint8_t *end
) {
    if (end - at > COLUMN_EXPECTED_BYTES) return column_json_is_expected(expected, at);
    return end - at > (int64_t)expected->length && memcmp(at, expected->text, expected->length) == 0;
}

/* Set the expected text with which a member begins. */
static void column_json_expect(column_expected *expected, const uint8_t *text, size_t length, column *member) {
    uint32_t bits = (uint32_t)(((uint64_t)1 << length) - 1);
    memcpy(expected->text, text, length);
    expected->bits[0] = (uint16_t)bits;
    expected->bits[1] = (uint16_t)(bits >> 16);
    expected->length = (uint32_t)length;
    expected->member = member;
}

/* The closing brace of the object whose opening brace is at `at`, if it has no members; else NULL. */
static __attribute__((noinline)) const uint8_t *column_json_empty_end(const uint8_t *at, const uint8_t *end) {
    at = json_skip_space(at + 1, end);
    return at < end && *at == '}' ? at : NULL;
}

/* Read the name of the member that has its comma or brace at `at`, and make it the expected one. Return the position of
 * its value, and its column in `member`, NULL if there is none. NULL: malformed. */
static __attribute__((noinline)) const uint8_t *column_json_unexpected(
    column_store *store, column *self, column_expected *expected, const uint8_t *at, const uint8_t *end, column **member
) {
    const uint8_t *begin = at, *name;
    uint32_t length;
    at = json_skip_space(at + 1, end);
    if (at == end || *at != '"') return NULL;
    at = column_json_string(store, at + 1, end, &name, &length);
    if (!at) return NULL;
    *member = column_member(self, name, length);
    at = json_skip_space(at, end);
    if (at == end || *at != ':') return NULL;
    at = json_skip_space(at + 1, end);
    if (at == end) return NULL;
    if (at - begin <= COLUMN_EXPECTED_BYTES)
        column_json_expect(expected, begin, (size_t)(at - begin), *member);
    return at;
}

/* Read a member's value of any kind and put it into its column, in place of a cell that may exist. member: NULL if it
 * has no column. Return the position of the comma or brace behind it; NULL: malformed. */
static __attribute__((noinline)) const uint8_t *column_json_any_value(
    column_store *store, column *member, uint32_t row, const uint8_t *at, const uint8_t *end
) {
    int put;
    at = json_skip_space(at, end);
    if (at == end) return NULL;
    if (!member) at = *at == '{' || *at == '[' ? column_json_skip(at, end) : column_json_skip_scalar(at, end);
    else {
        if (member->length > row) column_truncate(member, row);
        at = column_json_value(store, member, at, end, &put);
        if (at && !put) column_put_null(store, member);
    }
    if (!at) return NULL;
    at = json_skip_space(at, end);
    return at < end && (*at == ',' || *at == '}') ? at : NULL;
}

/* Read the object whose brace is at `at` as a cell of a struct. Return the position behind it; NULL: malformed. */
static const uint8_t *column_json_object(column_store *store, column *self, const uint8_t *at, const uint8_t *end) {
    const uint32_t row = self->length;
    const uint8_t *near_end = end - at > COLUMN_JSON_NEAR_BYTES ? end - COLUMN_JSON_NEAR_BYTES : at;
    column_expected *expected = self->expected;
    if (!column_reserve(store, self)) return NULL;
    do { /* for each member, with the brace or comma in front of it at `at` */
        const uint8_t *value, *stop = NULL;
        column *member;
        int has_room = at < near_end;
        if (has_room ? column_json_is_expected(expected, at) : column_json_is_expected_last(expected, at, end)) {
            value = at + expected->length;
            member = expected->member;
        } else {
            column *found;
            if (*at == '{' && (stop = column_json_empty_end(at, end)) != NULL) {
                at = stop;
                break;
            }
            if (expected == self->expected + COLUMN_EXPECTED_MAX) expected--; /* the last entry, never known */
            value = column_json_unexpected(store, self, expected, at, end, &found);
            if (!value) return NULL;
            member = found;
            has_room = 0;
        }
        if (has_room || end - value >= COLUMN_JSON_PLAIN_BYTES)
            stop = member ? column_json_plain_value(store, member, row, value) : column_json_skip_plain(value, end);
        if (!stop || (*stop != ',' && *stop != '}')) stop = column_json_any_value(store, member, row, value, end);
        if (!stop) return NULL;
        at = stop;
        expected++;
    } while (*at == ',');
    column_close_struct(store, self);
    return at + 1;
}

/* Read a message. False: malformed, or not an object. */
static int column_json_message(column_store *store, column *root, const uint8_t *at, const uint8_t *end) {
    at = json_skip_space(at, end);
    return at < end && *at == '{' && column_json_object(store, root, at, end) != NULL;
}

#endif
