/* The parts of writing XML that reading (xml_text.h) does not need. */

#ifndef AMPS_XML_WRITE_H
#define AMPS_XML_WRITE_H

#include <stdint.h>

enum { XML_ESCAPE_BYTES_MAX = 6 };

/* 1: not allowed in text or attributes; 2: not allowed in an attribute. */
static const uint8_t xml_write_class[256] = {
    [0 ... 0x1F] = 1, ['\t'] = 2, ['\n'] = 2, ['"'] = 2, ['<'] = 1, ['>'] = 1, ['&'] = 1,
};

/* The first byte that must be escaped; `end` if there is none. */
static inline const uint8_t *xml_plain_end(const uint8_t *at, const uint8_t *end, int in_attribute) {
    uint8_t class_max = in_attribute ? 0 : 2;
    for (; at < end; at++) {
        uint8_t class = xml_write_class[*at];
        if (class == 1 || class > class_max) return at;
    }
    return at;
}

/* Write the escape of such a byte, in at most XML_ESCAPE_BYTES_MAX bytes. Return the number of bytes. Most control
 * characters cannot be written: U+FFFD replaces them. */
static inline uint32_t xml_escape(uint8_t byte, uint8_t *out) {
    const char *written;
    uint32_t length = 0;
    switch (byte) {
    case '<': written = "&lt;"; break;
    case '>': written = "&gt;"; break;
    case '&': written = "&amp;"; break;
    case '"': written = "&quot;"; break;
    case '\t': written = "&#9;"; break;
    case '\n': written = "&#10;"; break;
    case '\r': written = "&#13;"; break;
    default: written = "\xEF\xBF\xBD"; break;
    }
    for (; written[length]; length++) out[length] = (uint8_t)written[length];
    return length;
}

#endif
