/* Conversion of times to text and back, always in UTC, with the conversion characters of strftime(3), and `%f`, `%03f`
 * for fractions.
 *
 * Text is not read with strptime(3), which does not support fractions, needs texts that end in a NUL and depends on the
 * locale. */
#ifndef AMPS_TIME_TEXT_H
#define AMPS_TIME_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TIME_TEXT_BYTES_MAX = 128 };

static inline int64_t time_floor_divide(int64_t number, int64_t by) {
    return number / by - (number % by < 0);
}

/* Days from 1970-01-01 of a date of the Gregorian calendar. Years begin in March here, so that leap days are last. */
static int64_t time_days(int64_t year, int month, int day) {
    int64_t era, year_of_era, day_of_year;
    if (month <= 2) year--;
    era = time_floor_divide(year, 400);
    year_of_era = year - era * 400;
    day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/* Write a time. Return the length of the text, or -1: it is too long, or the time has no date. */
static int time_text_write(const uint8_t *format, const uint8_t *end, double seconds, char *out) {
    int64_t micros, whole;
    struct tm parts;
    time_t clock;
    int fraction, length = 0;
    if (!(seconds > -6.3e10 && seconds < 2.6e11)) return -1; /* from before the year 1 to beyond the year 9999 */
    micros = (int64_t)(seconds * 1e6 + (seconds < 0 ? -0.5 : 0.5));
    whole = time_floor_divide(micros, 1000000);
    fraction = (int)(micros - whole * 1000000);
    clock = (time_t)whole;
    if (!gmtime_r(&clock, &parts)) return -1;
    while (format < end) {
        char piece[16], made[2 * TIME_TEXT_BYTES_MAX];
        int piece_length = 0, made_length;
        const uint8_t *first = format;
        if (*format != '%' || end - format == 1) {
            if (length == TIME_TEXT_BYTES_MAX) return -1;
            out[length++] = (char)*format++;
            continue;
        }
        format++;
        while (format < end && strchr("_-0^#+", *format) && *format) format++;
        while (format < end && *format >= '0' && *format <= '9') format++;
        if (format < end && (*format == 'E' || *format == 'O')) format++;
        if (format == end || format - first > 8 || !*format) return -1;
        format++;
        memcpy(piece, first, (size_t)(format - first));
        piece_length = (int)(format - first);
        if (piece[piece_length - 1] == 'f') {
            int millis = piece_length > 2 && piece[piece_length - 2] == '3';
            made_length = snprintf(made, sizeof made, millis ? "%03d" : "%06d", millis ? fraction / 1000 : fraction);
        } else if (piece[piece_length - 1] == 's') {
            made_length = snprintf(made, sizeof made, "%lld", (long long)whole);
        } else if (piece[piece_length - 1] == 'Z') {
            made_length = snprintf(made, sizeof made, "UTC");
        } else {
            piece[piece_length++] = '.'; /* so that an empty result differs from one that is too long */
            piece[piece_length] = 0;
            made_length = (int)strftime(made, sizeof made, piece, &parts) - 1;
            if (made_length < 0) return -1;
        }
        if (length + made_length > TIME_TEXT_BYTES_MAX) return -1;
        memcpy(out + length, made, (size_t)made_length);
        length += made_length;
    }
    return length;
}

typedef struct {
    int64_t year, century, epoch;
    int month, day, hour, minute, second, day_of_year, fraction_micros, offset_seconds;
    int year_in_century, has_century, has_epoch, has_date, half_day; /* half_day: 0 not given, 1 am, 2 pm */
    int is_twelve_hours;
} time_text_parts;

static int time_text_number(const uint8_t **at, const uint8_t *end, int digits_max, int64_t low, int64_t high,
                            int64_t *number) {
    int digits = 0;
    *number = 0;
    for (; *at < end && **at >= '0' && **at <= '9' && digits < digits_max; (*at)++, digits++)
        *number = *number * 10 + (**at - '0');
    return digits > 0 && *number >= low && *number <= high;
}

static int time_text_small(const uint8_t **at, const uint8_t *end, int low, int high, int *number) {
    int64_t wide;
    if (!time_text_number(at, end, high > 99 ? 3 : 2, low, high, &wide)) return 0;
    *number = (int)wide;
    return 1;
}

/* The index of the name at this position, in full or as its first three letters; -1 if there is none. */
static int time_text_name(const uint8_t **at, const uint8_t *end, const char *const *names, int count) {
    for (int which = 0; which < count; which++) {
        for (int shortened = 0; shortened < 2; shortened++) {
            size_t length = shortened ? 3 : strlen(names[which]), matched = 0;
            if ((size_t)(end - *at) < length) continue;
            while (matched < length && ((*at)[matched] | 0x20) == (names[which][matched] | 0x20)) matched++;
            if (matched == length) {
                *at += length;
                return which;
            }
        }
    }
    return -1;
}

static int time_text_blank(uint8_t byte) {
    return byte == ' ' || (byte >= 9 && byte <= 13);
}

static int time_text_parse(const uint8_t **text, const uint8_t *end, const uint8_t *format, const uint8_t *format_end,
                           time_text_parts *parts) {
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    static const char *const halves[] = {"am", "pm"};
    const uint8_t *at = *text;
    while (format < format_end) {
        const char *together = NULL;
        int millis = 0, ignored;
        int64_t wide;
        if (time_text_blank(*format)) {
            while (at < end && time_text_blank(*at)) at++;
            format++;
            continue;
        }
        if (*format != '%' || format_end - format == 1) {
            if (at == end || *at++ != *format++) return 0;
            continue;
        }
        format++;
        while (format < format_end && *format && strchr("_-0^#", *format)) format++;
        for (; format < format_end && *format >= '0' && *format <= '9'; format++) millis = *format == '3';
        if (format < format_end && (*format == 'E' || *format == 'O')) format++;
        if (format == format_end) return 0;
        /* As in strptime(3), blanks are allowed before a number. */
        if (*format && strchr("CdeHIjklmMSUuVwWyYsg", *format)) while (at < end && time_text_blank(*at)) at++;
        switch (*format++) {
        case '%': if (at == end || *at++ != '%') return 0; break;
        case 'a': case 'A': if (time_text_name(&at, end, days, 7) < 0) return 0; break;
        case 'b': case 'B': case 'h':
            if ((parts->month = time_text_name(&at, end, months, 12) + 1) == 0) return 0;
            parts->has_date = 1;
            break;
        case 'c': together = "%a %b %e %H:%M:%S %Y"; break;
        case 'C': if (!time_text_number(&at, end, 2, 0, 99, &parts->century)) return 0; parts->has_century = 1; break;
        case 'd': case 'e': if (!time_text_small(&at, end, 1, 31, &parts->day)) return 0; parts->has_date = 1; break;
        case 'D': case 'x': together = "%m/%d/%y"; break;
        case 'f': {
            int digits = 0, digits_max = millis ? 3 : 6, value = 0;
            for (; at < end && *at >= '0' && *at <= '9' && digits < digits_max; at++, digits++)
                value = value * 10 + (*at - '0');
            if (!digits) return 0;
            for (; digits < 6; digits++) value *= 10;
            parts->fraction_micros = value;
            break;
        }
        case 'F': together = "%Y-%m-%d"; break;
        case 'H': case 'k':
            if (!time_text_small(&at, end, 0, 23, &parts->hour)) return 0;
            parts->is_twelve_hours = 0;
            break;
        case 'I': case 'l':
            if (!time_text_small(&at, end, 1, 12, &parts->hour)) return 0;
            parts->is_twelve_hours = 1;
            break;
        case 'j': if (!time_text_small(&at, end, 1, 366, &parts->day_of_year)) return 0; break;
        case 'm': if (!time_text_small(&at, end, 1, 12, &parts->month)) return 0; parts->has_date = 1; break;
        case 'M': if (!time_text_small(&at, end, 0, 59, &parts->minute)) return 0; break;
        case 'n': case 't': while (at < end && time_text_blank(*at)) at++; break;
        case 'p': case 'P': {
            int length = end - at < 2 ? 0 : 2, which;
            for (which = 0; which < 2 && length; which++)
                if ((at[0] | 0x20) == halves[which][0] && (at[1] | 0x20) == 'm') break;
            if (!length || which == 2) return 0;
            parts->half_day = which + 1;
            at += 2;
            break;
        }
        case 'r': together = "%I:%M:%S %p"; break;
        case 'R': together = "%H:%M"; break;
        case 's': {
            int negative = at < end && *at == '-';
            at += negative;
            if (!time_text_number(&at, end, 12, 0, INT64_MAX, &parts->epoch)) return 0;
            if (negative) parts->epoch = -parts->epoch;
            parts->has_epoch = 1;
            break;
        }
        case 'S': if (!time_text_small(&at, end, 0, 60, &parts->second)) return 0; break;
        case 'T': case 'X': together = "%H:%M:%S"; break;
        case 'u': if (!time_text_small(&at, end, 1, 7, &ignored)) return 0; break;
        case 'U': case 'W': case 'V': if (!time_text_small(&at, end, 0, 53, &ignored)) return 0; break;
        case 'w': if (!time_text_small(&at, end, 0, 6, &ignored)) return 0; break;
        case 'y':
            if (!time_text_small(&at, end, 0, 99, &parts->year_in_century)) return 0;
            break;
        case 'Y': if (!time_text_number(&at, end, 4, 0, 9999, &parts->year)) return 0; break;
        case 'z': {
            int sign, hours, minutes = 0;
            while (at < end && time_text_blank(*at)) at++;
            if (at < end && (*at == 'Z' || *at == 'z')) { at++; parts->offset_seconds = 0; break; }
            if (at == end || (*at != '+' && *at != '-')) return 0;
            sign = *at++ == '-' ? -1 : 1;
            if (!time_text_number(&at, end, 2, 0, 23, &wide)) return 0;
            hours = (int)wide;
            if (at < end && *at == ':') at++;
            if (at < end && *at >= '0' && *at <= '9' && !time_text_small(&at, end, 0, 59, &minutes)) return 0;
            parts->offset_seconds = sign * (hours * 3600 + minutes * 60);
            break;
        }
        case 'Z': while (at < end && (*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') at++; break;
        default: return 0;
        }
        if (together &&
            !time_text_parse(&at, end, (const uint8_t *)together, (const uint8_t *)together + strlen(together), parts))
            return 0;
    }
    *text = at;
    return 1;
}

/* Set the seconds since 1970-01-01T00:00Z of a text that the format describes completely. Parts that the format does
 * not contain have the values of that time. Return 0 if the text does not match. */
static int time_text_read(const uint8_t *text, const uint8_t *end, const uint8_t *format, const uint8_t *format_end,
                          double *seconds) {
    time_text_parts parts = {.year = 1970, .month = 1, .day = 1, .year_in_century = -1};
    int64_t days;
    int hour;
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (!time_text_parse(&text, end, format, format_end, &parts) || text != end) return 0;
    if (parts.has_epoch) {
        *seconds = (double)parts.epoch + parts.fraction_micros / 1e6;
        return 1;
    }
    if (parts.has_century) parts.year = parts.century * 100 + (parts.year_in_century < 0 ? 0 : parts.year_in_century);
    else if (parts.year_in_century >= 0) parts.year = parts.year_in_century + (parts.year_in_century < 69 ? 2000 : 1900);
    hour = parts.hour;
    if (parts.is_twelve_hours) hour = hour % 12 + (parts.half_day == 2 ? 12 : 0);
    if (parts.day > lengths[parts.month - 1]) return 0;
    if (parts.month == 2 && parts.day == 29 && time_days(parts.year, 3, 1) - time_days(parts.year, 2, 1) == 28) return 0;
    if (parts.day_of_year && !parts.has_date) {
        if (parts.day_of_year > time_days(parts.year + 1, 1, 1) - time_days(parts.year, 1, 1)) return 0;
        days = time_days(parts.year, 1, 1) + parts.day_of_year - 1;
    } else days = time_days(parts.year, parts.month, parts.day);
    *seconds = (double)((days * 24 + hour) * 3600 + parts.minute * 60 + parts.second - parts.offset_seconds) +
               parts.fraction_micros / 1e6;
    return 1;
}

#endif
