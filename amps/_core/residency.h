/* Whether pages of a mapped file are in memory, and bringing them there. Linux only. */

#ifndef AMPS_RESIDENCY_H
#define AMPS_RESIDENCY_H

#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define RESIDENCY_PAGES_MAX 1024

/* Of `pages` pages (at most RESIDENCY_PAGES_MAX) from a page's beginning on: how many are in memory before the first one
 * that is not. Where the kernel does not say, all of them are taken to be. */
static inline uint64_t resident_pages(const uint8_t *address, uint64_t pages, uint64_t page_bytes)
{
    unsigned char found[RESIDENCY_PAGES_MAX];
    uint64_t at;

    if (mincore((void *)address, (size_t)(pages * page_bytes), found) != 0)
        return pages;
    for (at = 0; at < pages; at++)
        if (!(found[at] & 1))
            return at;
    return pages;
}

/* Have the device begin with a range, and with nothing around it: whoever waits for a page reads ahead otherwise. */
static inline void begin_reading_pages(const uint8_t *address, uint64_t length)
{
    madvise((void *)address, (size_t)length, MADV_WILLNEED);
}

/* Read a range into memory; returns when it is there. A failing device shows when somebody looks at the pages. */
static inline void read_pages(const uint8_t *address, uint64_t length, uint64_t page_bytes)
{
    volatile uint8_t seen;
    uint64_t at;

    /* All of it in one go; then wait for it. */
    begin_reading_pages(address, length);
    if (madvise((void *)address, (size_t)length, MADV_POPULATE_READ) == 0)
        return;
    /* Older kernels. */
    for (at = 0; at < length; at += page_bytes) {
        seen = address[at];
        (void)seen;
    }
}

#endif
