/* A JSON message into columns: one pass along message and columns, from the first byte to the end of the object.
 *
 * What nobody wants is stepped over, but it must be well-formed (RFC 8259), for a message counts as a whole or not at
 * all. Of a repeated name the last value counts, as in Spark and most readers; what stands behind the object is not
 * looked at. Beyond the RFC the tokens NaN, Infinity, -Infinity and +INF, -INF are numbers, as Python and Spark write
 * and read them. Recursion goes as deep as the columns do.
 *
 * Who writes messages writes them alike: each object is read in the expectation that its members are those of the one
 * before, in the same order, with blanks in the same places, and where that holds a name takes one comparison. Most
 * values are plain: a short integer, a short text without escapes, null, with a comma or closing brace right behind.
 * Those are tried first, where so many bytes are left that none of them need be counted. A try may be wrong and costs
 * nothing but time: whatever it does not know, or did not put as it should, is read again by the rules. */
#ifndef AMPS_COLUMN_JSON_H
#define AMPS_COLUMN_JSON_H

#include "column_cells.h"
#include "json_text.h"

enum {
    COLUMN_JSON_DEPTH_MAX = 1024, /* of what is stepped over */
    COLUMN_JSON_PLAIN_BYTES = 18, /* of a plain value at most: a quote, a vector of text and quote, what is behind */
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

/* Of the word in which a number begins the top bit of each byte that cannot go on with it, and maybe of some above the
 * first: of what is no digit, and of what follows a zero in front. */
static inline uint64_t column_json_integer_stops(uint64_t word) {
    return number_others(word) | (((word & 0xFF) - 1) & 0x8000);
}

/* Behind an integer of up to seven characters, as most numbers are: found, and read, in one word, of which all bytes
 * are there. Whether it has a minus takes no branch, for nobody could foretell it. NULL: it is something else; so it
 * is, too, if neither a comma nor a closing brace is at the place that is returned. */
static inline const uint8_t *column_json_short_integer(const uint8_t *at, int64_t *integer) {
    uint64_t word = number_word(at) ^ NUMBER_ZEROS;
    uint64_t negative = (uint8_t)word == ('-' ^ '0');
    uint64_t stops = column_json_integer_stops(word) ^ negative << 7;
    uint32_t bits;
    if (!stops || stops & 0x80 || (uint16_t)word == ('-' ^ '0')) return NULL; /* the latter is "-0" */
    bits = (uint32_t)__builtin_ctzll(stops) & 56;
    at += bits / 8;
    if (at[-1] == '-') return NULL;
    *integer = (int64_t)number_of_eight((word - negative * ('-' ^ '0')) << (64 - bits));
    if (negative) *integer = -*integer;
    return at;
}

/* Behind a string, number or literal that nobody wants; NULL: malformed. */
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

/* The same of what is no short integer and no string. */
static __attribute__((noinline)) const uint8_t *column_json_skip_rarer(const uint8_t *at, const uint8_t *end) {
    const uint8_t *stop;
    if (memcmp(at, "null", 4) == 0) return at + 4;
    stop = json_number_stop(at, end);
    return stop == end ? NULL : stop;
}

/* Behind a value that nobody wants, if it is plain, or any number; that many bytes are there. NULL, or a place where
 * neither a comma nor a closing brace is: it is something else. */
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

/* Behind a plain value, put into its column as the cell of the row; that many bytes are there. NULL, or a place where
 * neither a comma nor a closing brace is: it is something else, and what may be put is to be taken back. */
static inline const uint8_t *column_json_plain_value(
    column_store *store, column *self, uint32_t row, const uint8_t *at
) {
    if (self->length != row) return NULL; /* the name was there before */
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
            uint32_t others = (uint32_t)_mm_movemask_epi8(_mm_or_si128(bytes, escapes)); /* and what is not ASCII */
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

#if defined(__SSE2__)
static inline int column_json_is_half_expected(const column_expected *expected, const uint8_t *at, int half) {
    __m128i there = _mm_loadu_si128((const __m128i *)at + half);
    __m128i wanted = _mm_load_si128((const __m128i *)expected->text + half);
    return (~(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(there, wanted)) & expected->bits[half]) == 0;
}
#endif

/* Whether a member begins as expected. There are more bytes than are expected at most. */
static inline int column_json_is_expected(const column_expected *expected, const uint8_t *at) {
#if defined(__SSE2__)
    return column_json_is_half_expected(expected, at, 0) &&
           (expected->length <= JSON_VECTOR_BYTES || column_json_is_half_expected(expected, at, 1));
#else
    return memcmp(at, expected->text, expected->length) == 0;
#endif
}

/* The same where fewer may be there, and something must follow. */
static __attribute__((noinline)) int column_json_is_expected_last(
    const column_expected *expected, const uint8_t *at, const uint8_t *end
) {
    if (end - at > COLUMN_EXPECTED_BYTES) return column_json_is_expected(expected, at);
    return end - at > (int64_t)expected->length && memcmp(at, expected->text, expected->length) == 0;
}

/* Expect from now on that a member begins with that text. */
static void column_json_expect(column_expected *expected, const uint8_t *text, size_t length, column *member) {
    uint32_t bits = (uint32_t)(((uint64_t)1 << length) - 1);
    memcpy(expected->text, text, length);
    expected->bits[0] = (uint16_t)bits;
    expected->bits[1] = (uint16_t)(bits >> 16);
    expected->length = (uint32_t)length;
    expected->member = member;
}

/* The other brace of the object whose brace is at `at`, if it has no members; else NULL. */
static __attribute__((noinline)) const uint8_t *column_json_empty_end(const uint8_t *at, const uint8_t *end) {
    at = json_skip_space(at + 1, end);
    return at < end && *at == '}' ? at : NULL;
}

/* The value of the member that has its comma or brace at `at`, and its column, NULL if nobody wants it; from now on it
 * is expected. NULL: malformed. */
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

/* A member's value of any kind, put into its column, in place of one that may be there. member: NULL, nobody wants it.
 * The comma or brace behind it; NULL: malformed. */
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

/* The object whose brace is at `at`: a cell of a struct. The place behind it; NULL: malformed. */
static const uint8_t *column_json_object(column_store *store, column *self, const uint8_t *at, const uint8_t *end) {
    const uint32_t row = self->length;
    const uint8_t *near_end = end - at > COLUMN_JSON_NEAR_BYTES ? end - COLUMN_JSON_NEAR_BYTES : at;
    column_expected *expected = self->expected;
    if (!column_reserve(store, self)) return NULL;
    do { /* a member, of which `at` is the brace or comma in front */
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
            if (expected == self->expected + COLUMN_EXPECTED_MAX) expected--; /* never known, so none is behind it */
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

/* A message. False: malformed, or no object. */
static int column_json_message(column_store *store, column *root, const uint8_t *at, const uint8_t *end) {
    at = json_skip_space(at, end);
    return at < end && *at == '{' && column_json_object(store, root, at, end) != NULL;
}

#endif
