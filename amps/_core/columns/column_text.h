/* Conversion of text to dates, timestamps, decimal numbers and base64. No function reads at or beyond `end`, and any
 * text is allowed.
 *
 * Dates and timestamps have the forms of Spark's casts from strings: `[+-]yyyy[-m[m][-d[d]]]`, after a whole date `T`
 * or a blank and `h[h][:m[m][:s[s][.digits]]]`, after that a zone, `Z`, `UTC`, `GMT` or `[+-]h[h][:mm]`, with blanks
 * around it. Digits of seconds beyond the sixth are cut off. The form of FIX is `yyyymmdd[-hh:mm[:ss[.digits]]]`. */
#ifndef AMPS_COLUMN_TEXT_H
#define AMPS_COLUMN_TEXT_H

#include <stdint.h>
#include <string.h>

#include "time_text.h"

enum {
    COLUMN_DECIMAL_DIGITS_MAX = 38,
    COLUMN_DAY_S = 86400,
    COLUMN_YEAR_DIGITS_MAX = 7,
    COLUMN_DAYS_MAX = 106751990 /* range of 64 bits of microseconds in both directions, with a day to spare */
};

typedef struct {
    int64_t days;
    int64_t micros;   /* of the day, in the zone of the text */
    int64_t offset_s; /* offset of that zone from UTC */
} column_moment;

static inline int column_is_digit(uint8_t byte) {
    return (uint8_t)(byte - '0') <= 9;
}

static inline int column_is_blank(uint8_t byte) {
    return byte <= ' ';
}

/* Read `least` to `most` digits; NULL: there are fewer or more. */
static const uint8_t *column_digits(const uint8_t *at, const uint8_t *end, int least, int most, int64_t *number) {
    int count = 0;
    *number = 0;
    for (; at < end && count < most && column_is_digit(*at); at++, count++) *number = *number * 10 + (*at - '0');
    return count < least || (at < end && column_is_digit(*at)) ? NULL : at;
}

static int column_days(int64_t year, int64_t month, int64_t day, int64_t *days) {
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (month < 1 || month > 12 || day < 1 || day > lengths[month - 1] || (month == 2 && day == 29 && !leap)) return 0;
    *days = time_days(year, (int)month, (int)day);
    return 1;
}

/* Read the date at the beginning of a text. Return the position behind it; NULL: there is none. is_whole: it has year,
 * month and day. */
static const uint8_t *column_date(const uint8_t *at, const uint8_t *end, int64_t *days, int *is_whole) {
    int64_t year, month = 1, day = 1;
    int negative = 0;
    *is_whole = 0;
    if (at < end && (*at == '-' || *at == '+')) negative = *at++ == '-';
    at = column_digits(at, end, 4, COLUMN_YEAR_DIGITS_MAX, &year);
    if (!at) return NULL;
    if (at < end && *at == '-') {
        at = column_digits(at + 1, end, 1, 2, &month);
        if (!at) return NULL;
        if (at < end && *at == '-') {
            at = column_digits(at + 1, end, 1, 2, &day);
            if (!at) return NULL;
            *is_whole = 1;
        }
    }
    return column_days(negative ? -year : year, month, day, days) ? at : NULL;
}

/* The same in the form of FIX. */
static const uint8_t *column_fix_date(const uint8_t *at, const uint8_t *end, int64_t *days) {
    int64_t number;
    at = column_digits(at, end, 8, 8, &number);
    return at && column_days(number / 10000, number / 100 % 100, number % 100, days) ? at : NULL;
}

/* Read a zone, which must be the whole text. */
static int column_zone(const uint8_t *at, const uint8_t *end, int64_t *offset_s) {
    int64_t hours, minutes = 0;
    int negative;
    *offset_s = 0;
    if (end - at == 1 && *at == 'Z') return 1;
    if (end - at >= 3 && (memcmp(at, "UTC", 3) == 0 || memcmp(at, "GMT", 3) == 0)) {
        at += 3;
        if (at == end) return 1;
    }
    if (at == end || (*at != '+' && *at != '-')) return 0;
    negative = *at++ == '-';
    if (end - at == 4) {
        if (!column_digits(at, at + 2, 2, 2, &hours)) return 0;
        at += 2;
    } else {
        at = column_digits(at, end, 1, 2, &hours);
        if (!at) return 0;
        if (at < end && *at++ != ':') return 0;
        if (at == end && at[-1] == ':') return 0;
    }
    if (at < end && column_digits(at, end, 2, 2, &minutes) != end) return 0;
    if (hours > 18 || minutes > 59 || (hours == 18 && minutes)) return 0;
    *offset_s = (hours * 60 + minutes) * (negative ? -60 : 60);
    return 1;
}

/* Read a time of day with its zone, which must be the whole text. */
static int column_time(const uint8_t *at, const uint8_t *end, column_moment *moment) {
    int64_t hour, minute = 0, second = 0, micros = 0;
    at = column_digits(at, end, 1, 2, &hour);
    if (at && at < end && *at == ':') {
        at = column_digits(at + 1, end, 1, 2, &minute);
        if (at && at < end && *at == ':') {
            at = column_digits(at + 1, end, 1, 2, &second);
            if (at && at < end && *at == '.') {
                int64_t unit = 100000;
                for (at++; at < end && column_is_digit(*at); at++, unit /= 10) micros += (*at - '0') * unit;
            }
        }
    }
    if (!at || hour > 23 || minute > 59 || second > 59) return 0;
    moment->micros = ((hour * 60 + minute) * 60 + second) * 1000000 + micros;
    while (at < end && *at == ' ') at++;
    return at == end || column_zone(at, end, &moment->offset_s);
}

/* Read a date and time. is_fix: also in the form of FIX. */
static int column_read_moment(const uint8_t *at, const uint8_t *end, int is_fix, column_moment *moment) {
    int is_whole;
    const uint8_t *behind;
    memset(moment, 0, sizeof *moment);
    while (at < end && column_is_blank(*at)) at++;
    while (at < end && column_is_blank(end[-1])) end--;
    if (is_fix && (behind = column_fix_date(at, end, &moment->days)) != NULL)
        return behind == end || (*behind == '-' && column_time(behind + 1, end, moment));
    at = column_date(at, end, &moment->days, &is_whole);
    if (!at) return 0;
    if (at == end) return 1;
    return is_whole && (*at == 'T' || *at == ' ') && column_time(at + 1, end, moment);
}

/* Read microseconds since 1970-01-01T00:00Z. Texts without a zone are in UTC. */
static int column_read_timestamp(const uint8_t *at, const uint8_t *end, int is_fix, int64_t *micros) {
    column_moment moment;
    if (!column_read_moment(at, end, is_fix, &moment) || moment.days > COLUMN_DAYS_MAX || moment.days < -COLUMN_DAYS_MAX) return 0;
    *micros = (moment.days * COLUMN_DAY_S - moment.offset_s) * 1000000 + moment.micros;
    return 1;
}

/* Read days since 1970-01-01. Text behind a whole date and a `T` or a blank is ignored. */
static int column_read_date(const uint8_t *at, const uint8_t *end, int is_fix, int32_t *days) {
    int is_whole = 1;
    int64_t found;
    const uint8_t *behind = NULL;
    while (at < end && column_is_blank(*at)) at++;
    while (at < end && column_is_blank(end[-1])) end--;
    if (is_fix) behind = column_fix_date(at, end, &found);
    if (behind) {
        if (behind < end && *behind != '-') return 0;
    } else {
        behind = column_date(at, end, &found, &is_whole);
        if (!behind || (behind < end && (!is_whole || (*behind != 'T' && *behind != ' ')))) return 0;
    }
    *days = (int32_t)found;
    return *days == found;
}

/* Read a decimal number and multiply it by ten to the power of `scale`, rounded half up (away from zero). False: the
 * text is not a number, or the result has more digits than `precision`. Commas between digits are skipped if `commas`
 * is set. */
static int column_read_decimal(
    const uint8_t *at, const uint8_t *end, int precision, int scale, int commas, __int128 *number
) {
    const uint8_t *digits, *digits_end, *place;
    int64_t count = 0, behind_point = 0, exponent = 0, wanted, significant;
    int negative = 0, point = 0;
    unsigned __int128 mantissa = 0, bound = 1;
    if (at < end && (*at == '-' || *at == '+')) negative = *at++ == '-';
    digits = at;
    for (; at < end; at++) {
        if (column_is_digit(*at)) {
            count++;
            behind_point += point;
        } else if (*at == '.' && !point) point = 1;
        else if (*at != ',' || !commas) break;
    }
    digits_end = at;
    if (count == 0) return 0;
    if (at < end && (*at | 0x20) == 'e') {
        int64_t written = 0;
        int exponent_negative = 0;
        if (++at < end && (*at == '-' || *at == '+')) exponent_negative = *at++ == '-';
        if (at == end) return 0;
        for (; at < end && column_is_digit(*at); at++)
            if (written < (int64_t)1 << 40) written = written * 10 + (*at - '0');
        exponent = exponent_negative ? -written : written;
    }
    if (at != end) return 0;
    significant = count;
    for (place = digits; place < digits_end && !(*place >= '1' && *place <= '9'); place++) significant -= *place == '0';
    *number = 0;
    if (significant == 0) return 1;
    wanted = significant - behind_point + exponent + scale; /* digits of the result, before rounding */
    if (wanted < 0) return 1;
    if (wanted > precision) return 0;
    for (; wanted && place < digits_end; place++) {
        if (!column_is_digit(*place)) continue;
        mantissa = mantissa * 10 + (unsigned)(*place - '0');
        wanted--;
    }
    for (; wanted; wanted--) mantissa *= 10;
    while (place < digits_end && !column_is_digit(*place)) place++;
    if (place < digits_end && *place >= '5') mantissa++;
    for (int digit = 0; digit < precision; digit++) bound *= 10;
    if (mantissa >= bound) return 0;
    *number = negative ? -(__int128)mantissa : (__int128)mantissa;
    return 1;
}

/* Decode base64 (RFC 4648 §4; blanks are skipped). out: room for three quarters of the text. Return the number of
 * bytes, or -1: the text is not valid. */
static int64_t column_read_base64(const uint8_t *at, const uint8_t *end, uint8_t *out) {
    uint8_t *to = out;
    uint32_t bits = 0;
    int count = 0, padding = 0;
    for (; at < end; at++) {
        uint8_t byte = *at, value;
        if (column_is_blank(byte)) continue;
        if (byte == '=') {
            if (++padding > 2 || count < 2) return -1;
            value = 0;
        } else if (padding) return -1;
        else if (byte >= 'A' && byte <= 'Z') value = (uint8_t)(byte - 'A');
        else if (byte >= 'a' && byte <= 'z') value = (uint8_t)(byte - 'a' + 26);
        else if (column_is_digit(byte)) value = (uint8_t)(byte - '0' + 52);
        else if (byte == '+') value = 62;
        else if (byte == '/') value = 63;
        else return -1;
        bits = bits << 6 | value;
        if (++count == 4) {
            *to++ = (uint8_t)(bits >> 16);
            if (padding < 2) *to++ = (uint8_t)(bits >> 8);
            if (padding < 1) *to++ = (uint8_t)bits;
            if (padding) {
                for (at++; at < end; at++)
                    if (!column_is_blank(*at)) return -1;
                return to - out;
            }
            bits = 0;
            count = 0;
        }
    }
    return count ? -1 : to - out;
}

#endif
