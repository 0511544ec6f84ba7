/* Read a MessagePack or BSON message into columns. Both formats are nested maps and arrays of values with types.
 *
 * Of a repeated key the last value counts, as in readers that produce dictionaries. A message must be well-formed from
 * its first byte to its last. The depth of recursion is that of the columns. */
#ifndef AMPS_COLUMN_NESTED_H
#define AMPS_COLUMN_NESTED_H

#include "bson_wire.h"
#include "column_cells.h"
#include "msgpack_wire.h"

enum {
    COLUMN_MSGPACK_TIMESTAMP = 0xFF, /* type of the timestamp extension: -1 */
    COLUMN_NANOS_MAX = 999999999
};

/* Read the timestamp extension of MessagePack. */
static int column_msgpack_moment(const msgpack_item *item, int64_t *micros) {
    int64_t seconds, nanos = 0;
    const uint8_t *at = item->text;
    switch (item->length) {
    case 4:
        seconds = msgpack_u32(at);
        break;
    case 8:
        seconds = (int64_t)(msgpack_u64(at) & 0x3FFFFFFFFULL);
        nanos = (int64_t)(msgpack_u64(at) >> 34);
        break;
    case 12:
        nanos = msgpack_u32(at);
        seconds = (int64_t)msgpack_u64(at + 4);
        break;
    default:
        return 0;
    }
    return nanos <= COLUMN_NANOS_MAX && !__builtin_mul_overflow(seconds, (int64_t)1000000, micros) &&
           !__builtin_add_overflow(*micros, nanos / 1000, micros);
}

/* Convert a scalar to a cell. head: its first byte. */
static void column_msgpack_cell(const column *self, uint8_t head, const msgpack_item *item, column_cell *cell) {
    cell->kind = CELL_NULL;
    cell->text = item->text;
    cell->length = item->length;
    cell->integer = item->integer;
    cell->double_ = item->number;
    switch (item->kind) {
    case MSGPACK_BOOLEAN: cell->kind = CELL_BOOLEAN; break;
    case MSGPACK_INTEGER: cell->kind = CELL_INTEGER; break;
    case MSGPACK_UNSIGNED: cell->kind = CELL_UNSIGNED; break;
    case MSGPACK_DOUBLE: cell->kind = CELL_DOUBLE; break;
    case MSGPACK_TEXT: cell->kind = head >= 0xC4 && head <= 0xC6 ? CELL_BYTES : CELL_TEXT; break;
    case MSGPACK_EXTENSION:
        cell->kind = CELL_BYTES;
        if ((self->kind == COLUMN_TIMESTAMP || self->kind == COLUMN_DATE) &&
            item->text[-1] == COLUMN_MSGPACK_TIMESTAMP && column_msgpack_moment(item, &cell->integer))
            cell->kind = CELL_MICROS;
        break;
    }
}

static const uint8_t *column_msgpack_map(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, uint32_t pairs
);
static const uint8_t *column_msgpack_array(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, uint32_t count, int *put
);

/* Read a value and put it at the end of a column if it fits. Return the position behind it; NULL: malformed. */
static const uint8_t *column_msgpack_value(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, int *put
) {
    msgpack_item item = {0};
    column_cell cell;
    uint8_t head = at < end ? *at : 0;
    *put = 0;
    at = msgpack_read(at, end, &item);
    if (!at) return NULL;
    if (item.kind == MSGPACK_MAP) {
        if (self->kind != COLUMN_STRUCT) return msgpack_skip(at, end, 2 * (uint64_t)item.length);
        *put = 1;
        return column_msgpack_map(store, self, at, end, item.length);
    }
    if (item.kind == MSGPACK_ARRAY) {
        if (self->kind != COLUMN_ARRAY) return msgpack_skip(at, end, item.length);
        return column_msgpack_array(store, self, at, end, item.length, put);
    }
    column_msgpack_cell(self, head, &item, &cell);
    *put = column_put(store, self, &cell, 0);
    return at;
}

/* Read `count` elements of an array. An element that does not fit makes the array null; nil always fits. */
static const uint8_t *column_msgpack_array(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, uint32_t count, int *put
) {
    int fits = 1, element_put;
    *put = 0;
    for (; count && fits; count--) {
        int is_null = at < end && *at == 0xC0;
        at = column_msgpack_value(store, self->children, at, end, &element_put);
        if (!at) return NULL;
        if (!element_put) {
            column_put_null(store, self->children);
            fits = is_null;
        }
        if (store->failure) return NULL;
    }
    at = msgpack_skip(at, end, count);
    if (fits) *put = column_close_array(store, self);
    else column_truncate(self, self->length);
    return at;
}

/* Read the pairs of a map as a cell of a struct. */
static const uint8_t *column_msgpack_map(
    column_store *store, column *self, const uint8_t *at, const uint8_t *end, uint32_t pairs
) {
    uint32_t row = self->length;
    uint8_t digits[24];
    int put;
    for (; pairs; pairs--) {
        msgpack_item key = {0};
        column *member;
        at = msgpack_name(at, end, &key, digits);
        if (!at) return NULL;
        member = key.text ? column_member(self, key.text, key.length) : NULL;
        if (!member) at = msgpack_skip(at, end, 1);
        else {
            if (member->length > row) column_truncate(member, row);
            at = column_msgpack_value(store, member, at, end, &put);
            if (at && !put) column_put_null(store, member);
        }
        if (!at) return NULL;
    }
    column_close_struct(store, self);
    return at;
}

/* Read a message. False: malformed, or not a map. */
static int column_msgpack_message(column_store *store, column *root, const uint8_t *at, const uint8_t *end) {
    msgpack_item item = {0};
    at = msgpack_read(at, end, &item);
    return at && item.kind == MSGPACK_MAP && column_msgpack_map(store, root, at, end, item.length) == end;
}

/* Put a complete scalar of BSON at the end of a column if it fits. */
static int column_bson_scalar(column_store *store, column *self, uint8_t type, const uint8_t *at, const uint8_t *stop) {
    uint8_t made[BSON_DECIMAL_TEXT_MAX];
    column_cell cell = {.kind = CELL_NULL, .text = at};
    switch (type) {
    case BSON_STRING: case BSON_CODE: case BSON_SYMBOL:
        cell.kind = CELL_TEXT;
        cell.text = at + 4;
        cell.length = bson_u32(at) - 1;
        break;
    case BSON_CODE_WITH_SCOPE:
        cell.kind = CELL_TEXT;
        cell.text = at + 8;
        cell.length = bson_u32(at + 4) - 1;
        break;
    case BSON_REGEX:
        cell.kind = CELL_TEXT;
        cell.length = (uint32_t)(bson_name_end(at, stop) - 1 - at);
        break;
    case BSON_INT32:
        cell.kind = CELL_INTEGER;
        cell.integer = (int32_t)bson_u32(at);
        break;
    case BSON_INT64:
        cell.kind = CELL_INTEGER;
        cell.integer = (int64_t)bson_u64(at);
        break;
    case BSON_TIMESTAMP:
        cell.integer = (int64_t)bson_u64(at);
        cell.kind = cell.integer < 0 ? CELL_UNSIGNED : CELL_INTEGER;
        break;
    case BSON_DATETIME:
        cell.kind = CELL_MILLIS;
        cell.integer = (int64_t)bson_u64(at);
        break;
    case BSON_DOUBLE:
        cell.kind = CELL_DOUBLE;
        memcpy(&cell.double_, at, 8);
        break;
    case BSON_BOOLEAN:
        cell.kind = CELL_BOOLEAN;
        cell.integer = at[0];
        break;
    case BSON_BINARY:
        cell.kind = CELL_BYTES;
        cell.text = at + 5;
        cell.length = bson_u32(at);
        if (at[4] == BSON_BINARY_OLD && cell.length >= 4 && bson_u32(at + 5) == cell.length - 4) {
            cell.text += 4;
            cell.length -= 4;
        }
        break;
    case BSON_OBJECT_ID: case BSON_DB_POINTER:
        cell.kind = CELL_BYTES;
        cell.text = stop - 12;
        cell.length = 12;
        if (self->kind != COLUMN_BINARY) {
            bson_hex(stop - 12, 12, made);
            cell.kind = CELL_TEXT;
            cell.text = made;
            cell.length = 24;
        }
        break;
    case BSON_DECIMAL128:
        cell.kind = CELL_DECIMAL;
        cell.text = made;
        cell.length = bson_decimal_text(at, made);
        break;
    }
    return column_put(store, self, &cell, 0);
}

/* Whether values of a type count as null. */
static inline int column_bson_is_null(uint8_t type) {
    return type == BSON_NULL || type == BSON_UNDEFINED || type == BSON_MIN_KEY || type == BSON_MAX_KEY;
}

static int column_bson_document(column_store *store, column *self, const uint8_t *at, const uint8_t *stop);
static int column_bson_array(column_store *store, column *self, const uint8_t *at, const uint8_t *stop, int *put);

/* Read the value from `at` to `stop` and put it at the end of a column if it fits. False: malformed. */
static int column_bson_value(
    column_store *store, column *self, uint8_t type, const uint8_t *at, const uint8_t *stop, int *put
) {
    *put = 0;
    if (type == BSON_DOCUMENT && self->kind == COLUMN_STRUCT) {
        *put = 1;
        return column_bson_document(store, self, at, stop);
    }
    if (type == BSON_ARRAY && self->kind == COLUMN_ARRAY) return column_bson_array(store, self, at, stop, put);
    if (type != BSON_DOCUMENT && type != BSON_ARRAY) *put = column_bson_scalar(store, self, type, at, stop);
    return 1;
}

/* Read the elements of an array; their names are ignored. An element that does not fit makes the array null. */
static int column_bson_array(column_store *store, column *self, const uint8_t *at, const uint8_t *stop, int *put) {
    const uint8_t *end = stop - 1, *behind;
    int fits = 1, element_put;
    *put = 0;
    at += 4;
    while (at < end) {
        uint8_t type = *at++;
        at = bson_name_end(at, end);
        behind = at ? bson_value_end(type, at, end) : NULL;
        if (!behind) return 0;
        if (fits) {
            if (!column_bson_value(store, self->children, type, at, behind, &element_put)) return 0;
            if (!element_put) {
                column_put_null(store, self->children);
                fits = column_bson_is_null(type);
            }
        }
        at = behind;
    }
    if (fits) *put = column_close_array(store, self);
    else column_truncate(self, self->length);
    return 1;
}

/* Read the elements of a document as a cell of a struct. False: malformed. */
static int column_bson_document(column_store *store, column *self, const uint8_t *at, const uint8_t *stop) {
    const uint8_t *end = stop - 1, *name, *behind;
    uint32_t row = self->length;
    column *member;
    int put;
    at += 4;
    while (at < end) {
        uint8_t type = *at++;
        name = at;
        at = bson_name_end(at, end);
        behind = at ? bson_value_end(type, at, end) : NULL;
        if (!behind) return 0;
        member = column_member(self, name, (uint32_t)(at - 1 - name));
        if (member) {
            if (member->length > row) column_truncate(member, row);
            if (!column_bson_value(store, member, type, at, behind, &put)) return 0;
            if (!put) column_put_null(store, member);
        }
        at = behind;
    }
    column_close_struct(store, self);
    return 1;
}

/* Read a message. False: malformed. */
static int column_bson_message(column_store *store, column *root, const uint8_t *at, const uint8_t *end) {
    return bson_document_end(at, end) == end && column_bson_document(store, root, at, end);
}

#endif
