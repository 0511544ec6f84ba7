/* Read a FIX or NVFIX message into columns: pairs of tag and value, on one level.
 *
 * Values are text, and are converted to the type of their column. If the column is an array, it gets all values of a
 * repeated tag, otherwise the last one counts. An empty value is null. A message is malformed by the same rules as for
 * filters: a field without an equals sign or without a tag. */
#ifndef AMPS_COLUMN_TAGGED_H
#define AMPS_COLUMN_TAGGED_H

#include "column_cells.h"
#include "fix_text.h"

static void column_tagged_element(column_store *store, column *self, const column_cell *cell) {
    if (self->spoiled || column_put(store, self->children, cell, 0)) return;
    if (cell->kind == CELL_NULL) column_put_null(store, self->children);
    else self->spoiled = 1;
}

static void column_tagged_close(column_store *store, column *self) {
    if (self->spoiled) {
        column_truncate(self, self->length);
        column_put_null(store, self);
    } else if (self->children->length > (uint32_t)self->offsets[self->length]) column_close_array(store, self);
}

/* Read a message. False: malformed. */
static int column_tagged_message(
    column_store *store, column *root, const uint8_t *at, const uint8_t *end, uint8_t separator, int numeric_tags
) {
    uint32_t row = root->length;
    fix_cursor cursor;
    fix_begin(&cursor, at, end, separator);
    while (at < end) {
        const uint8_t *tag = at;
        column_cell cell;
        column *member;
        at = fix_stop(&cursor, at, 1);
        if (at == end || at == tag || *at != '=') return 0;
        member = numeric_tags && !fix_is_tag_number(tag, at) ? NULL : column_member(root, tag, (uint32_t)(at - tag));
        cell.text = at + 1;
        at = fix_stop(&cursor, cell.text, 0);
        cell.length = (uint32_t)(at - cell.text);
        cell.kind = cell.length ? CELL_UNTYPED : CELL_NULL;
        if (member && member->kind == COLUMN_ARRAY) column_tagged_element(store, member, &cell);
        else if (member) {
            if (member->length > row) column_truncate(member, row);
            if (!column_put(store, member, &cell, 0)) column_put_null(store, member);
        }
        if (at < end) at++;
    }
    for (uint32_t child = 0; child < root->child_count; child++)
        if (root->children[child].kind == COLUMN_ARRAY) column_tagged_close(store, &root->children[child]);
    column_close_struct(store, root);
    return 1;
}

#endif
