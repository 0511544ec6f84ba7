/* Dates of times given in UNIX seconds, in UTC or in the time zone of the process. */
#ifndef AMPS_CALENDAR_DATES_H
#define AMPS_CALENDAR_DATES_H

#include <math.h>
#include <stdint.h>
#include <time.h>

enum { CALENDAR_DAY_S = 86400 };

/* Whether a time has a date: from before the year 1 to beyond the year 9999. */
static inline int calendar_knows(double seconds) {
    return seconds > -6.3e10 && seconds < 2.6e11;
}

/* The parts of the date of a time for which `calendar_knows` is true. */
static inline int calendar_parts(double seconds, int local, struct tm *parts) {
    time_t clock = (time_t)floor(seconds);
    return (local ? localtime_r(&clock, parts) : gmtime_r(&clock, parts)) != NULL;
}

/* The beginning of the day of a time. */
static inline int64_t calendar_midnight(double seconds, int local) {
    struct tm parts;
    if (!local) return (int64_t)floor(seconds / CALENDAR_DAY_S) * CALENDAR_DAY_S;
    calendar_parts(seconds, 1, &parts);
    parts.tm_hour = parts.tm_min = parts.tm_sec = 0;
    parts.tm_isdst = -1; /* midnight may differ from the given time in daylight saving */
    return (int64_t)mktime(&parts);
}

/* Seconds that local time is ahead of UTC at a time. */
static inline int64_t calendar_offset(double seconds) {
    struct tm parts;
    calendar_parts(seconds, 1, &parts);
    return (int64_t)parts.tm_gmtoff;
}

#endif
