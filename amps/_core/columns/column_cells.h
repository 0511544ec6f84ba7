/* Put a value of a message into a column of the requested type: it is converted if it fits, else not put.
 *
 * The conversions are those of Spark's JSON reader: integers fit every integer type that is wide enough, numbers fit
 * floating point and decimals, texts fit dates, timestamps and base64, and every scalar fits strings. Text is not
 * converted to a number, and 1.0 not to an integer. But values of FIX and NVFIX are all text, so these are converted to
 * the requested type. Numbers for timestamps are seconds, with or without a fraction. */
#ifndef AMPS_COLUMN_CELLS_H
#define AMPS_COLUMN_CELLS_H

#include <math.h>
#include <stdio.h>

#include "column_store.h"
#include "column_text.h"
#include "number_text.h"
#include "utf8_text.h"

enum cell_kind {
    CELL_NULL = 0,
    CELL_BOOLEAN = 1,  /* integer */
    CELL_INTEGER = 2,  /* integer */
    CELL_UNSIGNED = 3, /* integer, its bits: above the largest signed one */
    CELL_DOUBLE = 4,   /* double_ */
    CELL_MILLIS = 5,   /* integer: since 1970-01-01T00:00Z */
    CELL_MICROS = 6,   /* integer: as CELL_MILLIS, in microseconds */
    CELL_NUMBER = 7,   /* text of a number */
    CELL_TEXT = 8,     /* a string */
    CELL_BYTES = 9,    /* bytes that may be text */
    CELL_UNTYPED = 10, /* text of a format without types */
    CELL_RAW = 11,     /* text of an object or array, as in the message */
    CELL_DECIMAL = 12  /* text of a decimal number, or of NaN or infinity */
};

typedef struct {
    int kind;
    uint32_t length;
    const uint8_t *text;
    int64_t integer;
    double double_;
} column_cell;

enum { CELL_DIGITS_MAX = 40 };

static inline int cell_is_text(const column_cell *cell, const char *text) {
    size_t length = strlen(text);
    return cell->length == length && memcmp(cell->text, text, length) == 0;
}

static inline int cell_is_word(const column_cell *cell, const char *lower) {
    size_t length = strlen(lower);
    if (cell->length != length) return 0;
    for (size_t place = 0; place < length; place++)
        if ((cell->text[place] | 0x20) != (uint8_t)lower[place]) return 0;
    return 1;
}

/* Read a name of a number: NaN or an infinity. It must be the whole text. */
static int cell_named_double(const column_cell *cell, double *number) {
    const uint8_t *at = cell->text;
    uint32_t length = cell->length;
    int negative = 0;
    if (cell_is_text(cell, "NaN")) {
        *number = NAN;
        return 1;
    }
    if (length && (*at == '-' || *at == '+')) {
        negative = *at == '-';
        at++;
        length--;
    }
    if (!(length == 8 && memcmp(at, "Infinity", 8) == 0) &&
        !(length == 3 && cell->length == 4 && memcmp(at, "INF", 3) == 0))
        return 0;
    *number = negative ? -INFINITY : INFINITY;
    return 1;
}

static inline int cell_text_number(const column_cell *cell, number_text_value *number) {
    int found = number_word_parse(cell->text, cell->length, number);
    return found ? found : number_text_parse(cell->text, cell->text + cell->length, number);
}

static inline int cell_integer(const column_cell *cell, int64_t *integer) {
    number_text_value number;
    switch (cell->kind) {
    case CELL_INTEGER: case CELL_MILLIS: case CELL_MICROS:
        *integer = cell->integer;
        return 1;
    case CELL_NUMBER: case CELL_UNTYPED:
        if (cell_text_number(cell, &number) != NUMBER_TEXT_INTEGER) return 0;
        *integer = number.integer;
        return 1;
    default:
        return 0;
    }
}

static inline int cell_double(const column_cell *cell, double *result) {
    number_text_value number;
    switch (cell->kind) {
    case CELL_INTEGER:
        *result = (double)cell->integer;
        return 1;
    case CELL_UNSIGNED:
        *result = (double)(uint64_t)cell->integer;
        return 1;
    case CELL_DOUBLE:
        *result = cell->double_;
        return 1;
    case CELL_TEXT:
        return cell_named_double(cell, result);
    case CELL_NUMBER: case CELL_UNTYPED: case CELL_DECIMAL:
        switch (cell_text_number(cell, &number)) {
        case NUMBER_TEXT_INTEGER:
            *result = (double)number.integer;
            return 1;
        case NUMBER_TEXT_UNSIGNED:
            *result = (double)number.unsigned_integer;
            return 1;
        case NUMBER_TEXT_DOUBLE:
            *result = number.double_;
            return 1;
        default:
            return cell_named_double(cell, result);
        }
    default:
        return 0;
    }
}

/* The shortest text that reads back as the same number, with NaN and infinities as in Spark and JSON; -1: out of
 * memory. Only the interpreter can make it, so the GIL is acquired meanwhile. */
static int cell_double_text(double number, char *text, size_t size) {
    PyGILState_STATE held;
    char *made;
    int length = -1;
    if (isnan(number)) return snprintf(text, size, "NaN");
    if (isinf(number)) return snprintf(text, size, number < 0 ? "-Infinity" : "Infinity");
    held = PyGILState_Ensure();
    made = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (made) {
        length = snprintf(text, size, "%s", made);
        PyMem_Free(made);
    } else PyErr_Clear();
    PyGILState_Release(held);
    return length;
}

/* The decimal digits of a number that is not text; -1: it is not a number. */
static int cell_digits(const column_cell *cell, char *text, size_t size) {
    switch (cell->kind) {
    case CELL_INTEGER: case CELL_MILLIS: case CELL_MICROS:
        return snprintf(text, size, "%lld", (long long)cell->integer);
    case CELL_UNSIGNED:
        return snprintf(text, size, "%llu", (unsigned long long)cell->integer);
    case CELL_DOUBLE:
        return cell_double_text(cell->double_, text, size);
    default:
        return -1;
    }
}

static inline int column_put_integer(column_store *store, column *self, int64_t integer) {
    int8_t byte = (int8_t)integer;
    int16_t word = (int16_t)integer;
    int32_t half = (int32_t)integer;
    switch (self->kind) {
    case COLUMN_BYTE: return byte == integer && column_put_fixed(store, self, &byte, 1);
    case COLUMN_SHORT: return word == integer && column_put_fixed(store, self, &word, 2);
    case COLUMN_INT: return half == integer && column_put_fixed(store, self, &half, 4);
    default: return column_put_fixed(store, self, &integer, 8);
    }
}

static int column_put_boolean(column_store *store, column *self, const column_cell *cell) {
    if (cell->kind == CELL_BOOLEAN) return column_put_bit(store, self, cell->integer != 0);
    if (cell->kind != CELL_UNTYPED) return 0;
    if (cell_is_word(cell, "true") || cell_is_word(cell, "y") || cell_is_text(cell, "1"))
        return column_put_bit(store, self, 1);
    if (cell_is_word(cell, "false") || cell_is_word(cell, "n") || cell_is_text(cell, "0"))
        return column_put_bit(store, self, 0);
    return 0;
}

static int column_put_decimal(column_store *store, column *self, const column_cell *cell) {
    char digits[CELL_DIGITS_MAX];
    const uint8_t *text = cell->text;
    int length = (int)cell->length, commas = cell->kind == CELL_TEXT;
    __int128 number;
    switch (cell->kind) {
    case CELL_NUMBER: case CELL_UNTYPED: case CELL_DECIMAL: case CELL_TEXT:
        break;
    default:
        length = cell_digits(cell, digits, sizeof digits);
        text = (const uint8_t *)digits;
    }
    return length > 0 && column_read_decimal(text, text + length, self->precision, self->scale, commas, &number) &&
           column_put_fixed(store, self, &number, 16);
}

static int column_put_text(column_store *store, column *self, const column_cell *cell) {
    char digits[CELL_DIGITS_MAX];
    int length;
    switch (cell->kind) {
    case CELL_BOOLEAN:
        return column_put_bytes(store, self, (const uint8_t *)(cell->integer ? "true" : "false"), cell->integer ? 4 : 5);
    case CELL_NUMBER: case CELL_DECIMAL:
        return column_put_bytes(store, self, cell->text, cell->length);
    case CELL_TEXT: case CELL_BYTES: case CELL_UNTYPED: case CELL_RAW:
        return utf8_is_valid(cell->text, cell->text + cell->length) &&
               column_put_bytes(store, self, cell->text, cell->length);
    default:
        length = cell_digits(cell, digits, sizeof digits);
        return length > 0 && column_put_bytes(store, self, (const uint8_t *)digits, (uint64_t)length);
    }
}

static int column_put_binary(column_store *store, column *self, const column_cell *cell, int base64) {
    int64_t length;
    uint8_t *made;
    if (cell->kind != CELL_BYTES && cell->kind != CELL_TEXT && cell->kind != CELL_UNTYPED) return 0;
    if (cell->kind != CELL_TEXT || !base64) return column_put_bytes(store, self, cell->text, cell->length);
    made = malloc((uint64_t)cell->length / 4 * 3 + 3);
    if (!made) {
        store->failure = COLUMN_NO_MEMORY;
        return 0;
    }
    length = column_read_base64(cell->text, cell->text + cell->length, made);
    if (length >= 0) length = column_put_bytes(store, self, made, (uint64_t)length);
    free(made);
    return length > 0;
}

static inline int column_put_micros(column_store *store, column *self, int64_t amount, int64_t unit_micros) {
    int64_t micros;
    return !__builtin_mul_overflow(amount, unit_micros, &micros) && column_put_fixed(store, self, &micros, 8);
}

static int column_put_moment(column_store *store, column *self, const column_cell *cell) {
    int64_t micros;
    double seconds;
    const uint8_t *end = cell->text + cell->length;
    switch (cell->kind) {
    case CELL_MILLIS: return column_put_micros(store, self, cell->integer, 1000);
    case CELL_MICROS: return column_put_micros(store, self, cell->integer, 1);
    case CELL_TEXT: case CELL_UNTYPED:
        if (column_read_timestamp(cell->text, end, cell->kind == CELL_UNTYPED, &micros))
            return column_put_fixed(store, self, &micros, 8);
        if (cell->kind == CELL_TEXT) return 0;
        break;
    case CELL_INTEGER: case CELL_DOUBLE: case CELL_NUMBER: case CELL_DECIMAL: case CELL_UNSIGNED:
        break;
    default:
        return 0;
    }
    if (cell_integer(cell, &micros)) return column_put_micros(store, self, micros, 1000000);
    if (!cell_double(cell, &seconds) || !(seconds > -9.2e12 && seconds < 9.2e12)) return 0;
    micros = (int64_t)llround(seconds * 1e6);
    return column_put_fixed(store, self, &micros, 8);
}

static int column_put_date(column_store *store, column *self, const column_cell *cell) {
    int32_t days;
    int64_t unit = cell->kind == CELL_MILLIS ? (int64_t)COLUMN_DAY_S * 1000 : (int64_t)COLUMN_DAY_S * 1000000;
    int64_t wide;
    if (cell->kind == CELL_MILLIS || cell->kind == CELL_MICROS) {
        wide = time_floor_divide(cell->integer, unit);
        days = (int32_t)wide;
        return days == wide && column_put_fixed(store, self, &days, 4);
    }
    return (cell->kind == CELL_TEXT || cell->kind == CELL_UNTYPED) &&
           column_read_date(cell->text, cell->text + cell->length, cell->kind == CELL_UNTYPED, &days) &&
           column_put_fixed(store, self, &days, 4);
}

/* Put a value at the end of a column. False: it does not fit, or is null, and nothing was put. base64: text is base64,
 * because the format has no other way to write bytes. */
static inline int column_put(column_store *store, column *self, const column_cell *cell, int base64) {
    int64_t integer;
    double number;
    float narrow;
    if (cell->kind == CELL_NULL) return 0;
    switch (self->kind) {
    case COLUMN_BOOLEAN: return column_put_boolean(store, self, cell);
    case COLUMN_BYTE: case COLUMN_SHORT: case COLUMN_INT: case COLUMN_LONG:
        return cell_integer(cell, &integer) && column_put_integer(store, self, integer);
    case COLUMN_FLOAT:
        if (!cell_double(cell, &number)) return 0;
        narrow = (float)number;
        return column_put_fixed(store, self, &narrow, 4);
    case COLUMN_DOUBLE: return cell_double(cell, &number) && column_put_fixed(store, self, &number, 8);
    case COLUMN_DECIMAL: return column_put_decimal(store, self, cell);
    case COLUMN_STRING: return column_put_text(store, self, cell);
    case COLUMN_BINARY: return column_put_binary(store, self, cell, base64);
    case COLUMN_DATE: return column_put_date(store, self, cell);
    case COLUMN_TIMESTAMP: return column_put_moment(store, self, cell);
    default: return 0;
    }
}

#endif
