/* Columns that grow by one cell at a time, in the layout of Arrow: a bitmap of validity, and values, or offsets and
 * bytes, or children. They form a tree. The root is a struct, and each of its rows is one message.
 *
 * A cell is put at the end of a column, or not at all. While a row is read, the members of a struct may have one cell
 * more than the struct, and the child of an array any number. `column_truncate` removes these at any time, so that a
 * malformed message leaves nothing behind. If memory or the 31 bits of offsets are exhausted, the store records the
 * failure, nothing more is put, and the function that began the row removes it.
 *
 * Nearly all cells are valid, so only nulls are marked: the bitmap has ones for all other cells, and behind the last
 * one. The members of a struct have room for at least as many cells as the struct. */
#ifndef AMPS_COLUMN_STORE_H
#define AMPS_COLUMN_STORE_H

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum column_kind {
    COLUMN_BOOLEAN = 0,
    COLUMN_BYTE = 1,
    COLUMN_SHORT = 2,
    COLUMN_INT = 3,
    COLUMN_LONG = 4,
    COLUMN_FLOAT = 5,
    COLUMN_DOUBLE = 6,
    COLUMN_DECIMAL = 7,
    COLUMN_STRING = 8,
    COLUMN_BINARY = 9,
    COLUMN_DATE = 10,      /* days since 1970-01-01 */
    COLUMN_TIMESTAMP = 11, /* microseconds since then, UTC */
    COLUMN_ARRAY = 12,
    COLUMN_STRUCT = 13,
    COLUMN_KINDS = 14
};

/* Bytes of a value; 0: booleans have one bit, other kinds have no fixed width. */
static const uint8_t column_widths[COLUMN_KINDS] = {
    [COLUMN_BYTE] = 1,   [COLUMN_SHORT] = 2,    [COLUMN_INT] = 4,  [COLUMN_LONG] = 8,      [COLUMN_FLOAT] = 4,
    [COLUMN_DOUBLE] = 8, [COLUMN_DECIMAL] = 16, [COLUMN_DATE] = 4, [COLUMN_TIMESTAMP] = 8,
};

enum {
    COLUMN_CELLS_MIN = 64,
    COLUMN_CELLS_MAX = 1 << 30,
    COLUMN_BUCKETS = 256,
    COLUMN_EXPECTED_MAX = 64,       /* members of an object that are predicted */
    COLUMN_EXPECTED_BYTES = 32
};

#define COLUMN_BYTES_MAX 0x7FFFFFFFu /* of one column of text: the maximum of offsets */

enum { COLUMN_FULL = 1, COLUMN_NO_MEMORY = 2 };

/* How the member at a position of an object began when it was last read. Initially it is a byte with which no member
 * begins. */
typedef struct {
    _Alignas(16) uint8_t text[COLUMN_EXPECTED_BYTES]; /* from the brace or comma in front of its name to its value */
    uint16_t bits[2];                                 /* one for each of its bytes, in each half */
    uint32_t length;                                  /* of `text` */
    struct column *member;                            /* NULL = it has no column */
} column_expected;

typedef struct column {
    uint8_t kind;
    uint8_t precision;       /* of decimals: number of digits */
    uint8_t scale;           /* of decimals: digits behind the point */
    uint8_t spoiled;         /* of an array that is being read: an element did not fit */
    uint32_t length;         /* cells */
    uint32_t capacity;       /* number of cells there is room for; a multiple of 64 */
    uint32_t child_count;
    uint8_t *validity;       /* a bit for each cell, 0 = null; ones behind the last cell */
    uint8_t *values;         /* of the kinds with a width, and a bit for each boolean */
    int32_t *offsets;        /* of strings, binary and arrays: one more than there are cells */
    uint8_t *data;           /* of strings and binary */
    uint64_t data_length;
    uint64_t data_capacity;
    struct column *children; /* of a struct its members; of an array its column of elements */
    int32_t *buckets;        /* of a struct: the first member whose name is in a bucket; -1 = none */
    column_expected *expected; /* of a struct: by position in objects, and one more that is never known */
    int32_t next_in_bucket;  /* of a member: the next one in the same bucket */
    uint32_t name_length;
    uint8_t *name;           /* of a member; owned */
} column;

typedef struct {
    int failure;             /* 0, or the reason why nothing more can be put */
    uint8_t *scratch;        /* for text that is converted before it is read */
    uint64_t scratch_capacity;
} column_store;

static inline int column_has_offsets(const column *self) {
    return self->kind == COLUMN_STRING || self->kind == COLUMN_BINARY || self->kind == COLUMN_ARRAY;
}

static int column_resize(void **buffer, uint64_t bytes) {
    void *grown = realloc(*buffer, bytes);
    if (grown) *buffer = grown;
    return grown != NULL;
}

/* Make room for `capacity` cells, in the members of a struct first. */
static int column_grow(column_store *store, column *self, uint32_t capacity) {
    uint64_t width = column_widths[self->kind];
    if (capacity > COLUMN_CELLS_MAX) {
        store->failure = COLUMN_FULL;
        return 0;
    }
    if (self->kind == COLUMN_STRUCT)
        for (column *child = self->children, *behind = child + self->child_count; child < behind; child++)
            if (child->capacity < capacity && !column_grow(store, child, capacity)) return 0;
    if (!column_resize((void **)&self->validity, capacity / 8) ||
        (width && !column_resize((void **)&self->values, capacity * width)) ||
        (self->kind == COLUMN_BOOLEAN && !column_resize((void **)&self->values, capacity / 8)) ||
        (column_has_offsets(self) && !column_resize((void **)&self->offsets, ((uint64_t)capacity + 1) * 4))) {
        store->failure = COLUMN_NO_MEMORY;
        return 0;
    }
    memset(self->validity + self->capacity / 8, 0xFF, (capacity - self->capacity) / 8);
    self->capacity = capacity;
    return 1;
}

static inline int column_reserve(column_store *store, column *self) {
    return self->length < self->capacity || column_grow(store, self, self->capacity * 2);
}

static int column_grow_data(column_store *store, column *self, uint64_t needed) {
    uint64_t capacity = self->data_capacity * 2;
    if (needed > COLUMN_BYTES_MAX) {
        store->failure = COLUMN_FULL;
        return 0;
    }
    if (capacity < needed) capacity = needed;
    if (capacity > COLUMN_BYTES_MAX) capacity = COLUMN_BYTES_MAX;
    if (!column_resize((void **)&self->data, capacity)) {
        store->failure = COLUMN_NO_MEMORY;
        return 0;
    }
    self->data_capacity = capacity;
    return 1;
}

static inline uint8_t *column_scratch(column_store *store, uint64_t bytes) {
    if (bytes > store->scratch_capacity) {
        if (!column_resize((void **)&store->scratch, bytes * 2)) {
            store->failure = COLUMN_NO_MEMORY;
            return NULL;
        }
        store->scratch_capacity = bytes * 2;
    }
    return store->scratch;
}

static inline void column_mark_null(column *self) {
    assert(self->length < self->capacity);
    self->validity[self->length / 8] &= (uint8_t)~(1 << self->length % 8);
}

/* The number of null cells. */
static uint64_t column_nulls(const column *self) {
    uint64_t found = 0;
    for (uint32_t cell = 0; cell < self->length; cell += 64) {
        uint64_t bits;
        memcpy(&bits, self->validity + cell / 8, 8);
        if (~bits) found += (uint64_t)__builtin_popcountll(~bits);
    }
    return found;
}

/* Remove all cells but the first `length`, and all cells of members or elements beyond those of their owner. */
static void column_truncate(column *self, uint32_t length) {
    if (self->length > length) {
        uint32_t byte = length / 8;
        self->validity[byte] |= (uint8_t)(0xFF << length % 8);
        memset(self->validity + byte + 1, 0xFF, (self->length - 1) / 8 - byte);
        self->length = length;
    }
    self->spoiled = 0;
    if (self->kind == COLUMN_STRING || self->kind == COLUMN_BINARY)
        self->data_length = (uint64_t)self->offsets[self->length];
    else if (self->kind == COLUMN_ARRAY)
        column_truncate(self->children, (uint32_t)self->offsets[self->length]);
    else
        for (uint32_t child = 0; child < self->child_count; child++)
            column_truncate(&self->children[child], self->length);
}

static void column_put_null(column_store *store, column *self) {
    uint64_t width = column_widths[self->kind];
    if (!column_reserve(store, self)) return;
    column_mark_null(self);
    if (width) memset(self->values + self->length * width, 0, width);
    else if (self->kind == COLUMN_BOOLEAN) self->values[self->length / 8] &= (uint8_t)~(1 << self->length % 8);
    else if (self->offsets) self->offsets[self->length + 1] = self->offsets[self->length];
    else
        for (uint32_t child = 0; child < self->child_count; child++) column_put_null(store, &self->children[child]);
    self->length++;
}

/* Append a value as a cell, for which there is room. */
static inline void column_close_fixed(column *self, const void *value, uint32_t width) {
    assert(width == column_widths[self->kind]);
    memcpy(self->values + (uint64_t)self->length * width, value, width);
    self->length++;
}

static inline int column_put_fixed(column_store *store, column *self, const void *value, uint32_t width) {
    if (!column_reserve(store, self)) return 0;
    column_close_fixed(self, value, width);
    return 1;
}

static inline int column_put_bit(column_store *store, column *self, int value) {
    uint8_t *bits, bit;
    if (!column_reserve(store, self)) return 0;
    bits = self->values + self->length / 8;
    bit = (uint8_t)(1 << self->length % 8);
    *bits = (uint8_t)(value ? *bits | bit : *bits & ~bit);
    self->length++;
    return 1;
}

/* Append the bytes up to `behind` as a cell, for which there is room. */
static inline void column_close_bytes(column *self, uint64_t behind) {
    self->data_length = behind;
    self->offsets[self->length + 1] = (int32_t)behind;
    self->length++;
}

static inline int column_put_bytes(column_store *store, column *self, const uint8_t *text, uint64_t length) {
    uint64_t behind = self->data_length + length;
    if (!column_reserve(store, self)) return 0;
    if (behind > self->data_capacity && !column_grow_data(store, self, behind)) return 0;
    if (length) memcpy(self->data + self->data_length, text, length);
    column_close_bytes(self, behind);
    return 1;
}

/* Append a cell to a struct whose members are read. Missing members become null. */
static inline int column_close_struct(column_store *store, column *self) {
    if (!column_reserve(store, self)) return 0;
    for (column *child = self->children, *behind = child + self->child_count; child < behind; child++)
        if (child->length == self->length) column_put_null(store, child);
    self->length++;
    return 1;
}

/* Append a cell to an array whose elements are read. */
static inline int column_close_array(column_store *store, column *self) {
    if (!column_reserve(store, self)) return 0;
    self->offsets[self->length + 1] = (int32_t)self->children->length;
    self->length++;
    return 1;
}

static inline uint32_t column_bucket(const uint8_t *name, uint32_t length) {
    if (!length) return 0;
    return (name[0] * 31u + name[length - 1] * 7u + name[length / 2] * 3u + length) % COLUMN_BUCKETS;
}

/* The member of a struct by its name; NULL: there is no column. */
static inline column *column_member(const column *self, const uint8_t *name, uint32_t length) {
    int32_t at = self->buckets[column_bucket(name, length)];
    while (at >= 0) {
        column *member = &self->children[at];
        if (member->name_length == length && memcmp(member->name, name, length) == 0) return member;
        at = member->next_in_bucket;
    }
    return NULL;
}

/* Prepare a column of zeroed memory for cells. Its kind must be set. */
static int column_begin(column_store *store, column *self, uint32_t child_count) {
    if (!column_grow(store, self, COLUMN_CELLS_MIN)) return 0;
    if (self->offsets) self->offsets[0] = 0;
    if (self->kind == COLUMN_STRUCT) {
        self->buckets = malloc(COLUMN_BUCKETS * sizeof(int32_t));
        self->expected = calloc(COLUMN_EXPECTED_MAX + 1, sizeof(column_expected));
        if (!self->buckets || !self->expected) return 0;
        for (uint32_t bucket = 0; bucket < COLUMN_BUCKETS; bucket++) self->buckets[bucket] = -1;
        for (uint32_t place = 0; place <= COLUMN_EXPECTED_MAX; place++)
            self->expected[place].bits[0] = self->expected[place].length = 1;
    }
    if (child_count) {
        self->children = calloc(child_count, sizeof(column));
        if (!self->children) return 0;
        self->child_count = child_count;
    }
    return 1;
}

/* Set the name of a member. It must not have one. */
static int column_name_member(column *self, uint32_t child, const uint8_t *name, uint32_t length) {
    column *member = &self->children[child];
    uint32_t bucket = column_bucket(name, length);
    member->name = malloc(length ? length : 1);
    if (!member->name) return 0;
    memcpy(member->name, name, length);
    member->name_length = length;
    member->next_in_bucket = self->buckets[bucket];
    self->buckets[bucket] = (int32_t)child;
    return 1;
}

static void column_free(column *self) {
    for (uint32_t child = 0; child < self->child_count; child++) column_free(&self->children[child]);
    free(self->children);
    free(self->validity);
    free(self->values);
    free(self->offsets);
    free(self->data);
    free(self->buckets);
    free(self->expected);
    free(self->name);
    memset(self, 0, sizeof *self);
}

#endif
