/* Read an XML document token by token, and check that it is well-formed (XML 1.0) as far as this is possible without a
 * DTD. A document type declaration is skipped and not used, so a reference to an entity declared in it is an error.
 * Bytes from 0x80 on are accepted as they are, also in names.
 *
 * Nothing is copied, and there is no recursion: the names of at most XML_DEPTH_MAX open elements are kept.
 * Nothing at or beyond `end` is read. */

#ifndef AMPS_XML_TEXT_H
#define AMPS_XML_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { XML_DEPTH_MAX = 64 };
/* Limits of the methods that find repeated attributes of an element. Up to XML_PAIRWISE_MAX they are compared pairwise,
 * up to XML_HASHED_MAX they are hashed, and more are sorted. So no choice of names takes long. */
enum { XML_PAIRWISE_MAX = 4, XML_HASHED_MAX = 96, XML_HASH_PLACES = 256 };

enum {
    XML_MALFORMED = 0,
    XML_FINISHED,
    XML_OPEN,       /* name; its attributes are to be read until XML_TAG_END */
    XML_ATTRIBUTE,  /* name, text */
    XML_TAG_END,
    XML_CLOSE,      /* also of an element without content */
    XML_TEXT,       /* text */
    XML_CDATA       /* text */
};

/* The way in which text is read. */
enum { XML_READ_TEXT = 0, XML_READ_CDATA, XML_READ_ATTRIBUTE };

typedef struct {
    const uint8_t *text;
    uint64_t length;
} xml_name;

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const uint8_t *begin;     /* of the last token; of an attribute with the blanks before it */
    const uint8_t *text;      /* also the text between the quotes of an attribute */
    const uint8_t *text_end;
    xml_name name;
    int depth;                /* open elements */
    int is_empty;             /* the last start tag was of an element without content */
    int had_root;
    int had_type;             /* a document type declaration */
    xml_name open[XML_DEPTH_MAX];
    xml_name *attributes;     /* of the last start tag; memory is kept */
    uint64_t attribute_count;
    uint64_t attribute_capacity;
} xml_cursor;

/* 1: allowed inside a name; 3: also at its beginning. */
static const uint8_t xml_name_class[256] = {
    ['-'] = 1, ['.'] = 1, ['0' ... '9'] = 1, [':'] = 3, ['_'] = 3, ['A' ... 'Z'] = 3, ['a' ... 'z'] = 3,
    [0x80 ... 0xFF] = 3,
};

static inline int xml_is_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

static inline const uint8_t *xml_skip_space(const uint8_t *at, const uint8_t *end) {
    while (at < end && xml_is_space(*at)) at++;
    return at;
}

#if defined(__SSE2__)
/* Bytes from `low` to `low` + `above`. */
static inline __m128i xml_in_range(__m128i bytes, char low, char above) {
    __m128i distance = _mm_sub_epi8(bytes, _mm_set1_epi8(low));
    return _mm_cmpeq_epi8(_mm_min_epu8(distance, _mm_set1_epi8(above)), distance);
}
#endif

/* The end of a name; `at` itself if there is none. */
static inline const uint8_t *xml_name_end(const uint8_t *at, const uint8_t *end) {
    if (at == end || xml_name_class[*at] < 3) return at;
    at++;
#if defined(__SSE2__)
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i found = _mm_or_si128(xml_in_range(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), 'a', 'z' - 'a'),
                                     xml_in_range(bytes, '0', ':' - '0'));
        found = _mm_or_si128(found, xml_in_range(bytes, '-', '.' - '-'));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('_')));
        found = _mm_or_si128(found, bytes); /* only the highest bits count: those of bytes from 0x80 on */
        uint32_t others = ~(uint32_t)_mm_movemask_epi8(found) & 0xFFFF;
        if (others) return at + __builtin_ctz(others);
    }
#endif
    while (at < end && xml_name_class[*at]) at++;
    return at;
}

/* Whether the name, which must be in front of `at`, is also at `at`. */
static inline int xml_is_name(const uint8_t *at, const uint8_t *end, const xml_name *name) {
    if ((uint64_t)(end - at) < name->length) return 0;
#if defined(__SSE2__)
    if (name->length <= 16 && end - at >= 16) {
        __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at),
                                      _mm_loadu_si128((const __m128i *)name->text));
        return (~(uint32_t)_mm_movemask_epi8(same) & (((uint32_t)1 << name->length) - 1)) == 0;
    }
#endif
    return memcmp(at, name->text, (size_t)name->length) == 0;
}

/* The first of three bytes, or of the bytes that no document may contain; `end` if there is none. */
static inline const uint8_t *xml_stop(const uint8_t *at, const uint8_t *end, char first, char second, char third) {
#if defined(__SSE2__)
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(first)),
                                     _mm_cmpeq_epi8(bytes, _mm_set1_epi8(second)));
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
        __m128i allowed = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\t')),
                                       _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n')));
        allowed = _mm_or_si128(allowed, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\r')));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(third)));
        found = _mm_or_si128(found, _mm_andnot_si128(allowed, control));
        uint32_t mask = (uint32_t)_mm_movemask_epi8(found);
        if (mask) return at + __builtin_ctz(mask);
    }
#endif
    for (; at < end; at++) {
        char byte = (char)*at;
        if (byte == first || byte == second || byte == third) return at;
        if (*at < 0x20 && !xml_is_space(*at)) return at;
    }
    return at;
}

/* Read the reference at `at`, an ampersand: set its character and return the position behind it; NULL: not known. */
static inline const uint8_t *xml_reference(const uint8_t *at, const uint8_t *end, uint32_t *character) {
    uint32_t code = 0, base = 10;
    int digits = 0;
    if (end - at < 4) return NULL;
    if (at[1] != '#') {
        if (memcmp(at + 1, "lt;", 3) == 0) return *character = '<', at + 4;
        if (memcmp(at + 1, "gt;", 3) == 0) return *character = '>', at + 4;
        if (end - at >= 5 && memcmp(at + 1, "amp;", 4) == 0) return *character = '&', at + 5;
        if (end - at >= 6 && memcmp(at + 1, "quot;", 5) == 0) return *character = '"', at + 6;
        if (end - at >= 6 && memcmp(at + 1, "apos;", 5) == 0) return *character = '\'', at + 6;
        return NULL;
    }
    at += 2;
    if (*at == 'x') base = 16, at++;
    for (; at < end && *at != ';'; at++, digits = 1) {
        uint32_t digit = (uint32_t)*at - '0';
        if (digit > 9) {
            digit = ((uint32_t)*at | 0x20) - 'a';
            if (base == 10 || digit > 5) return NULL;
            digit += 10;
        }
        code = code * base + digit;
        if (code > 0x10FFFF) return NULL;
    }
    if (at == end || !digits || (code < 0x20 && !xml_is_space((uint8_t)code))) return NULL;
    if ((code >= 0xD800 && code < 0xE000) || code == 0xFFFE || code == 0xFFFF) return NULL;
    *character = code;
    return at + 1;
}

/* Whether text needs no conversion when it is read. */
static inline int xml_is_plain(const uint8_t *at, const uint8_t *end, int how) {
    size_t length = (size_t)(end - at);
    if (how != XML_READ_CDATA && memchr(at, '&', length)) return 0;
    if (memchr(at, '\r', length)) return 0;
    return how != XML_READ_ATTRIBUTE || (!memchr(at, '\n', length) && !memchr(at, '\t', length));
}

/* Read text whose references are known to be valid. The result is not longer. Line ends become line feeds, in
 * attributes blanks. Return the end of the output. */
static inline uint8_t *xml_read(const uint8_t *at, const uint8_t *end, int how, uint8_t *out) {
    while (at < end) {
        uint32_t character = *at;
        if (character == '&' && how != XML_READ_CDATA) {
            const uint8_t *behind = xml_reference(at, end, &character);
            if (!behind) return out;
            at = behind;
            if (character < 0x80) *out++ = (uint8_t)character;
            else if (character < 0x800) {
                *out++ = (uint8_t)(0xC0 | character >> 6);
                *out++ = (uint8_t)(0x80 | (character & 0x3F));
            } else if (character < 0x10000) {
                *out++ = (uint8_t)(0xE0 | character >> 12);
                *out++ = (uint8_t)(0x80 | (character >> 6 & 0x3F));
                *out++ = (uint8_t)(0x80 | (character & 0x3F));
            } else {
                *out++ = (uint8_t)(0xF0 | character >> 18);
                *out++ = (uint8_t)(0x80 | (character >> 12 & 0x3F));
                *out++ = (uint8_t)(0x80 | (character >> 6 & 0x3F));
                *out++ = (uint8_t)(0x80 | (character & 0x3F));
            }
            continue;
        }
        at++;
        if (character == '\r') {
            if (at < end && *at == '\n') at++;
            character = '\n';
        }
        if (how == XML_READ_ATTRIBUTE && (character == '\n' || character == '\t')) character = ' ';
        *out++ = (uint8_t)character;
    }
    return out;
}

/* The end of a comment whose first byte after the opening is at `at`; NULL: malformed. */
static inline const uint8_t *xml_skip_comment(const uint8_t *at, const uint8_t *end) {
    for (;; at++) {
        at = xml_stop(at, end, '-', '-', '-');
        if (end - at < 3 || *at != '-') return NULL;
        if (at[1] == '-') return at[2] == '>' ? at + 3 : NULL;
    }
}

/* The end of a processing instruction at `at`. declared: it may be the XML declaration. NULL: malformed. */
static inline const uint8_t *xml_skip_instruction(const uint8_t *at, const uint8_t *end, int declared) {
    const uint8_t *target = at + 2;
    at = xml_name_end(target, end);
    if (at == target || at == end) return NULL;
    if (at - target == 3 && (target[0] | 0x20) == 'x' && (target[1] | 0x20) == 'm' && (target[2] | 0x20) == 'l') {
        if (!declared || memcmp(target, "xml", 3) != 0 || !xml_is_space(*at)) return NULL;
    }
    if (!xml_is_space(*at) && *at != '?') return NULL;
    if (*at == '?' && (end - at < 2 || at[1] != '>')) return NULL;
    for (;; at++) {
        at = xml_stop(at, end, '?', '?', '?');
        if (end - at < 2 || *at != '?') return NULL;
        if (at[1] == '>') return at + 2;
    }
}

/* The end of a document type declaration at `at`; NULL: it has no end. Quotes, comments and instructions in it may
 * contain text that looks like its end. */
static inline const uint8_t *xml_skip_type(const uint8_t *at, const uint8_t *end) {
    uint64_t depth = 1;
    for (at += 9; at < end;) {
        if (*at == '"' || *at == '\'') {
            at = memchr(at + 1, *at, (size_t)(end - at - 1));
            if (!at) return NULL;
            at++;
        } else if (*at == '<') {
            if (end - at >= 4 && memcmp(at, "<!--", 4) == 0) {
                at = xml_skip_comment(at + 4, end);
                if (!at) return NULL;
            } else if (end - at >= 2 && at[1] == '?') {
                at = xml_skip_instruction(at, end, 0);
                if (!at) return NULL;
            } else {
                depth++;
                at++;
            }
        } else if (*at++ == '>' && --depth == 0) return at;
    }
    return NULL;
}

static inline int xml_compare_names(const void *left, const void *right) {
    const xml_name *one = left, *other = right;
    if (one->length != other->length) return one->length < other->length ? -1 : 1;
    return memcmp(one->text, other->text, (size_t)one->length);
}

static inline uint32_t xml_name_hash(const xml_name *name) {
    uint64_t head = 0, tail = 0;
    if (name->length >= 8) {
        memcpy(&head, name->text, 8);
        memcpy(&tail, name->text + name->length - 8, 8);
    } else {
        for (uint64_t at = 0; at < name->length; at++) head = head << 8 | name->text[at];
    }
    head = (head ^ name->length) * 0x9E3779B97F4A7C15ULL;
    head = (head ^ head >> 32 ^ tail) * 0xD6E8FEB86659FD93ULL;
    return (uint32_t)(head >> 40);
}

/* Whether the last start tag has an attribute twice. */
static inline int xml_has_repeated(xml_cursor *cursor) {
    xml_name *names = cursor->attributes;
    uint64_t count = cursor->attribute_count;
    if (count <= XML_PAIRWISE_MAX) {
        for (uint64_t at = 1; at < count; at++)
            for (uint64_t other = 0; other < at; other++)
                if (xml_compare_names(&names[at], &names[other]) == 0) return 1;
        return 0;
    }
    if (count <= XML_HASHED_MAX) {
        uint8_t places[XML_HASH_PLACES]; /* number of an attribute, counted from 1 */
        memset(places, 0, sizeof places);
        for (uint64_t at = 0; at < count; at++) {
            uint32_t place = xml_name_hash(&names[at]) % XML_HASH_PLACES;
            for (; places[place]; place = (place + 1) % XML_HASH_PLACES)
                if (xml_compare_names(&names[at], &names[places[place] - 1]) == 0) return 1;
            places[place] = (uint8_t)(at + 1);
        }
        return 0;
    }
    qsort(names, (size_t)count, sizeof *names, xml_compare_names);
    for (uint64_t at = 1; at < count; at++)
        if (xml_compare_names(&names[at - 1], &names[at]) == 0) return 1;
    return 0;
}

/* Begin a document. The cursor must be zero before the first one; it keeps its memory for the next. */
static inline void xml_begin(xml_cursor *cursor, const uint8_t *data, const uint8_t *end) {
    if (end - data >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0) data += 3;
    cursor->at = data;
    cursor->end = end;
    cursor->begin = data;
    cursor->depth = 0;
    cursor->is_empty = 0;
    cursor->had_root = 0;
    cursor->had_type = 0;
    /* The declaration is only allowed at the beginning. */
    if (end - data >= 6 && memcmp(data, "<?xml", 5) == 0 && xml_is_space(data[5])) {
        data = xml_skip_instruction(data, end, 1);
        if (data) cursor->at = data;
    }
}

static inline void xml_release(xml_cursor *cursor) { free(cursor->attributes); }

static inline int xml_text(xml_cursor *cursor, const uint8_t *at) {
    const uint8_t *end = cursor->end;
    uint32_t character;
    cursor->text = at;
    for (;;) {
        at = xml_stop(at, end, '<', '&', ']');
        if (at == end) return XML_MALFORMED;
        if (*at == '<') break;
        if (*at == '&') {
            at = xml_reference(at, end, &character);
            if (!at) return XML_MALFORMED;
        } else if (*at == ']') {
            if (end - at >= 3 && at[1] == ']' && at[2] == '>') return XML_MALFORMED;
            at++;
        } else return XML_MALFORMED;
    }
    cursor->text_end = at;
    cursor->at = at;
    return XML_TEXT;
}

static inline int xml_cdata(xml_cursor *cursor, const uint8_t *at) {
    const uint8_t *end = cursor->end;
    cursor->text = at;
    for (;; at++) {
        at = xml_stop(at, end, ']', ']', ']');
        if (end - at < 3 || *at != ']') return XML_MALFORMED;
        if (at[1] == ']' && at[2] == '>') break;
    }
    cursor->text_end = at;
    cursor->at = at + 3;
    return XML_CDATA;
}

/* Read the next token. */
static inline int xml_next(xml_cursor *cursor) {
    const uint8_t *at = cursor->at, *end = cursor->end, *name;
    xml_name *opened;
    if (cursor->is_empty) {
        cursor->is_empty = 0;
        cursor->begin = at;
        cursor->depth--;
        return XML_CLOSE;
    }
    for (;;) {
        cursor->begin = at;
        if (at == end) return cursor->depth == 0 && cursor->had_root ? XML_FINISHED : XML_MALFORMED;
        if (*at != '<') {
            if (cursor->depth) return xml_text(cursor, at);
            at = xml_skip_space(at, end);
            if (at < end && *at != '<') return XML_MALFORMED;
            continue;
        }
        if (end - at < 2) return XML_MALFORMED;
        if (at[1] == '/') {
            if (cursor->depth == 0) return XML_MALFORMED;
            opened = &cursor->open[--cursor->depth];
            if (!xml_is_name(at + 2, end, opened)) return XML_MALFORMED;
            at = xml_skip_space(at + 2 + opened->length, end);
            if (at == end || *at != '>') return XML_MALFORMED;
            cursor->at = at + 1;
            return XML_CLOSE;
        }
        if (at[1] == '?') {
            at = xml_skip_instruction(at, end, 0);
            if (!at) return XML_MALFORMED;
            continue;
        }
        if (at[1] == '!') {
            if (end - at >= 4 && memcmp(at, "<!--", 4) == 0) {
                at = xml_skip_comment(at + 4, end);
                if (!at) return XML_MALFORMED;
                continue;
            }
            if (cursor->depth && end - at >= 9 && memcmp(at, "<![CDATA[", 9) == 0) return xml_cdata(cursor, at + 9);
            if (cursor->had_root || cursor->had_type || end - at < 10 || memcmp(at, "<!DOCTYPE", 9) != 0 ||
                !xml_is_space(at[9]))
                return XML_MALFORMED;
            cursor->had_type = 1;
            at = xml_skip_type(at, end);
            if (!at) return XML_MALFORMED;
            continue;
        }
        name = at + 1;
        at = xml_name_end(name, end);
        if (at == name || cursor->depth == XML_DEPTH_MAX || (cursor->depth == 0 && cursor->had_root))
            return XML_MALFORMED;
        cursor->had_root = 1;
        opened = &cursor->open[cursor->depth++];
        opened->text = cursor->name.text = name;
        opened->length = cursor->name.length = (uint64_t)(at - name);
        cursor->attribute_count = 0;
        cursor->at = at;
        return XML_OPEN;
    }
}

/* Read the next attribute of a start tag, or its end. Running out of memory counts as malformed. */
static inline int xml_attribute(xml_cursor *cursor) {
    const uint8_t *at = xml_skip_space(cursor->at, cursor->end), *end = cursor->end, *name = at;
    uint32_t character;
    uint8_t quote;
    cursor->begin = cursor->at;
    if (at == end) return XML_MALFORMED;
    if (*at == '>' || *at == '/') {
        cursor->is_empty = *at == '/';
        if (cursor->is_empty && (++at == end || *at != '>')) return XML_MALFORMED;
        cursor->at = at + 1;
        return cursor->attribute_count > 1 && xml_has_repeated(cursor) ? XML_MALFORMED : XML_TAG_END;
    }
    at = xml_name_end(name, end);
    if (at == name || name == cursor->at) return XML_MALFORMED;
    cursor->name.text = name;
    cursor->name.length = (uint64_t)(at - name);
    if (cursor->attribute_count == cursor->attribute_capacity) {
        uint64_t capacity = cursor->attribute_capacity * 2 + 16;
        xml_name *grown = realloc(cursor->attributes, (size_t)capacity * sizeof *grown);
        if (!grown) return XML_MALFORMED;
        cursor->attributes = grown;
        cursor->attribute_capacity = capacity;
    }
    cursor->attributes[cursor->attribute_count].text = name;
    cursor->attributes[cursor->attribute_count++].length = cursor->name.length;
    at = xml_skip_space(at, end);
    if (at == end || *at != '=') return XML_MALFORMED;
    at = xml_skip_space(at + 1, end);
    if (at == end || (*at != '"' && *at != '\'')) return XML_MALFORMED;
    quote = *at++;
    cursor->text = at;
    for (;;) {
        at = xml_stop(at, end, (char)quote, '<', '&');
        if (at == end) return XML_MALFORMED;
        if (*at == quote) break;
        if (*at != '&') return XML_MALFORMED;
        at = xml_reference(at, end, &character);
        if (!at) return XML_MALFORMED;
    }
    cursor->text_end = at;
    cursor->at = at + 1;
    return XML_ATTRIBUTE;
}

/* After XML_OPEN: skip the rest of the element if it has no attributes and only plain text, as most elements. Otherwise
 * return 0 and change nothing. */
static inline int xml_skip_leaf(xml_cursor *cursor) {
    const uint8_t *at = cursor->at, *end = cursor->end;
    const xml_name *opened = &cursor->open[cursor->depth - 1];
    if (at == end || *at != '>') return 0;
    at = xml_stop(at + 1, end, '<', '&', ']');
    if (end - at < 3 || *at != '<' || at[1] != '/' || !xml_is_name(at + 2, end, opened)) return 0;
    at += 2 + opened->length;
    if (at == end || *at != '>') return 0;
    cursor->at = at + 1;
    cursor->depth--;
    return 1;
}

#endif
