/* A JSON message into columns: one pass along message and columns, from the first byte to the end of the object.
 *
 * What nobody wants is stepped over, but it must be well-formed (RFC 8259), for a message counts as a whole or not at
 * all. Of a repeated name the last value counts, as in Spark and most readers; what stands behind the object is not looked
 * at. Who writes messages writes them alike: each object is read in the expectation that its members are those of the one
 * before, in the same order, and where that holds a name takes one comparison. Beyond the RFC the tokens NaN, Infinity, -Infinity and +INF, -INF are numbers, as Python and Spark write and read
 * them. Recursion goes as deep as the columns do. */
#ifndef AMPS_COLUMN_JSON_H
#define AMPS_COLUMN_JSON_H

#include "column_cells.h"
#include "json_text.h"

enum { COLUMN_JSON_DEPTH_MAX = 1024 }; /* of what is stepped over */

static uint32_t column_json_unit(const uint8_t *at) {
    uint32_t unit = 0;
    for (int place = 0; place < 4; place++) {
        uint8_t byte = at[place];
        unit = unit << 4 | (uint32_t)(byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10);
    }
    return unit;
}

/* Text between quotes without its escapes, all of which are valid. out: as much room as the text. A half of a surrogate
 * pair is a question mark, as in Java. */
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

/* The string whose content begins at `at`: the place behind its quote; NULL: malformed. */
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

/* Behind a number that RFC 8259 does not know; NULL: it is none of these either. */
static const uint8_t *column_json_named_number(const uint8_t *at, const uint8_t *end) {
    static const char *const names[] = {"NaN", "Infinity", "-Infinity", "+Infinity", "-INF", "+INF"};
    for (uint32_t name = 0; name < sizeof names / sizeof *names; name++) {
        size_t length = strlen(names[name]);
        if ((size_t)(end - at) >= length && memcmp(at, names[name], length) == 0) return at + length;
    }
    return NULL;
}

/* Behind an integer of up to seven digits that a comma or the end of the object follows, most of the numbers that there
 * are: found, and read, in one word. NULL: anything else. */
static inline const uint8_t *column_json_short_integer(const uint8_t *at, const uint8_t *end, int64_t *integer) {
    uint64_t word, others;
    uint32_t negative = *at == '-', digits;
    if (end - at < 9) return NULL;
    at += negative;
    word = number_word(at) ^ NUMBER_ZEROS;
    others = number_others(word);
    if (!others) return NULL;
    digits = (uint32_t)__builtin_ctzll(others) / 8;
    if (!digits || (at[digits] != ',' && at[digits] != '}') || (digits > 1 && *at == '0')) return NULL;
    *integer = (int64_t)number_of_eight(word << (64 - 8 * digits));
    if (negative) *integer = -*integer;
    return at + digits;
}

/* Behind a string, number or literal that nobody wants; NULL: malformed. */
static inline const uint8_t *column_json_skip_scalar(const uint8_t *at, const uint8_t *end) {
    const uint8_t *stop;
    int64_t integer;
    if (*at <= '9' && (stop = column_json_short_integer(at, end, &integer)) != NULL) return stop;
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

/* From the name of a member to its value. */
static const uint8_t *column_json_skip_name(const uint8_t *at, const uint8_t *end) {
    if (*at != '"') return NULL;
    at = column_json_skip_scalar(at, end);
    if (!at) return NULL;
    at = json_skip_space(at, end);
    if (at == end || *at != ':') return NULL;
    at = json_skip_space(at + 1, end);
    return at == end ? NULL : at;
}

/* Behind a value that nobody wants, whatever is in it; NULL: malformed, or deeper than readers go. */
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

/* A value, put at the end of a column if it fits there. The place behind it; NULL: malformed. */
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
            return column_json_object(store, self, at + 1, end);
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

/* Of an object's member, if it is what most are, an integer or a short text without escapes in a column of such: the
 * place behind it, and it is put. NULL: it is something else, and nothing is put. */
static inline const uint8_t *column_json_plain_value(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end
) {
    int64_t integer;
    switch (self->kind) {
    case COLUMN_BYTE: case COLUMN_SHORT: case COLUMN_INT: case COLUMN_LONG:
        at = column_json_short_integer(at, end, &integer);
        return at && column_put_integer(store, self, integer) ? at : NULL;
#if defined(__SSE2__)
    case COLUMN_STRING:
        if (*at == '"' && end - at > JSON_VECTOR_BYTES && self->data_capacity - self->data_length >= JSON_VECTOR_BYTES) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(at + 1));
            uint32_t stops = json_equal(bytes, '"') | json_equal(bytes, '\\');
            uint32_t length = (uint32_t)__builtin_ctz(stops | 1u << JSON_VECTOR_BYTES);
            uint32_t others = (uint32_t)_mm_movemask_epi8(bytes) & ((1u << length) - 1); /* that are not ASCII */
            if (!stops || others || at[1 + length] != '"' || !column_reserve(store, self)) return NULL;
            _mm_storeu_si128((__m128i *)(self->data + self->data_length), bytes);
            column_close_bytes(self, self->data_length + length);
            return at + length + 2;
        }
        return NULL;
#endif
    default:
        return NULL;
    }
}

/* The elements of an array that begin at `at`. One that does not fit makes all of it null; null fits everywhere. */
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

/* Whether a member begins as expected. */
static inline int column_json_is_expected(const column_expected *expected, const uint8_t *at, const uint8_t *end) {
    if (!expected->length || (size_t)(end - at) <= expected->length) return 0;
#if defined(__SSE2__)
    if (end - at >= COLUMN_EXPECTED_BYTES) {
        uint32_t same = 0;
        for (int half = 0; half < COLUMN_EXPECTED_BYTES; half += JSON_VECTOR_BYTES) {
            __m128i there = _mm_loadu_si128((const __m128i *)(at + half));
            __m128i wanted = _mm_loadu_si128((const __m128i *)(expected->text + half));
            same |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(there, wanted)) << half;
        }
        return ~same << (COLUMN_EXPECTED_BYTES - expected->length) == 0;
    }
#endif
    return memcmp(at, expected->text, expected->length) == 0;
}

/* The member of a struct whose name in quotes begins at `at`, which moves behind its colon; NULL: nobody wants it, or `at`
 * is NULL, because it is malformed. */
static column *column_json_member(
    column_store *store, column *self, column_expected *expected, const uint8_t **at, const uint8_t *end
) {
    const uint8_t *begin = *at, *name, *stop;
    uint32_t name_length;
    column *member;
    size_t length;
    *at = NULL;
    if (*begin != '"') return NULL;
    stop = column_json_string(store, begin + 1, end, &name, &name_length);
    if (!stop) return NULL;
    member = column_member(self, name, name_length);
    stop = json_skip_space(stop, end);
    if (stop == end || *stop != ':') return NULL;
    *at = stop + 1;
    length = (size_t)(*at - begin);
    if (expected && length <= COLUMN_EXPECTED_BYTES) {
        memcpy(expected->text, begin, length);
        expected->length = (uint32_t)length;
        expected->child = member ? (int32_t)(member - self->children) : -1;
    }
    return member;
}

/* The members of an object that begin at `at`: a cell of a struct. The place behind it; NULL: malformed. */
static const uint8_t *column_json_object(column_store *store, column *self, const uint8_t *at, const uint8_t *end) {
    uint32_t row = self->length;
    const uint8_t *stop;
    column *member;
    int put;
    at = json_skip_space(at, end);
    if (at == end) return NULL;
    if (*at != '}') {
        for (uint32_t place = 0;; place++) {
            column_expected *expected = place < COLUMN_EXPECTED_MAX ? &self->expected[place] : NULL;
            if (expected && column_json_is_expected(expected, at, end)) {
                at += expected->length;
                member = expected->child < 0 ? NULL : &self->children[expected->child];
            } else {
                member = column_json_member(store, self, expected, &at, end);
                if (!at) return NULL;
            }
            at = json_skip_space(at, end);
            if (at == end) return NULL;
            if (!member) at = *at == '{' || *at == '[' ? column_json_skip(at, end) : column_json_skip_scalar(at, end);
            else {
                if (member->length > row) column_truncate(member, row);
                stop = column_json_plain_value(store, member, at, end);
                if (stop) at = stop;
                else {
                    at = column_json_value(store, member, at, end, &put);
                    if (at && !put) column_put_null(store, member);
                }
            }
            if (!at) return NULL;
            at = json_skip_space(at, end);
            if (at == end) return NULL;
            if (*at == '}') break;
            if (*at != ',') return NULL;
            at = json_skip_space(at + 1, end);
            if (at == end) return NULL;
        }
    }
    column_close_struct(store, self);
    return at + 1;
}

/* A message. False: malformed, or no object. */
static int column_json_message(column_store *store, column *root, const uint8_t *at, const uint8_t *end) {
    at = json_skip_space(at, end);
    return at < end && *at == '{' && column_json_object(store, root, at + 1, end) != NULL;
}

#endif
