/* Whether bytes are text: message types that distinguish text from bytes write them as one or the other.
 *
 * UTF-8 as in RFC 3629: no surrogates, nothing above U+10FFFF, no overlong forms.
 */
#ifndef AMPS_UTF8_TEXT_H
#define AMPS_UTF8_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool utf8_is_valid(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint64_t word;
        if (end - at >= 8) {
            memcpy(&word, at, 8);
            if ((word & 0x8080808080808080ULL) == 0) {
                at += 8;
                continue;
            }
        }
        uint8_t first = at[0];
        if (first < 0x80) {
            at += 1;
            continue;
        }
        /* After some first bytes the second byte has other bounds, which exclude overlong forms, characters above
         * U+10FFFF and surrogates. */
        uint8_t low = 0x80, high = 0xBF;
        int more;
        if (first >= 0xC2 && first <= 0xDF) {
            more = 1;
        } else if (first >= 0xE0 && first <= 0xEF) {
            more = 2;
            if (first == 0xE0)
                low = 0xA0;
            else if (first == 0xED)
                high = 0x9F;
        } else if (first >= 0xF0 && first <= 0xF4) {
            more = 3;
            if (first == 0xF0)
                low = 0x90;
            else if (first == 0xF4)
                high = 0x8F;
        } else {
            return false;
        }
        if (end - at <= more || at[1] < low || at[1] > high)
            return false;
        for (int place = 2; place <= more; place++)
            if ((at[place] & 0xC0) != 0x80)
                return false;
        at += more + 1;
    }
    return true;
}

#endif
