/* Checks whether pages of a mapped file are in memory, and reads them into memory. Linux only.
 *
 * An access to a mapped page that cannot be read, because of a failing device or a truncated file, kills the process
 * (SIGBUS). So pages are first read by a call that returns an error instead. */

#ifndef AMPS_RESIDENCY_H
#define AMPS_RESIDENCY_H

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define RESIDENCY_PAGES_MAX 1024
#define READ_ENDED (-1)

/* Number of pages in memory before the first one that is not, among `pages` pages (at most RESIDENCY_PAGES_MAX).
 * `address` is the beginning of a page. If the kernel gives no information, all pages count as in memory. */
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

/* Current size of a file in bytes; `unknown` if it cannot be determined. */
static inline uint64_t file_bytes(int descriptor, uint64_t unknown)
{
    struct stat status;

    return fstat(descriptor, &status) == 0 ? (uint64_t)status.st_size : unknown;
}

/* Start reading exactly this range from the device. A page fault would also read ahead around its page. */
static inline void begin_reading_pages(const uint8_t *address, uint64_t length)
{
    madvise((void *)address, (size_t)length, MADV_WILLNEED);
}

static inline int populate_pages(const uint8_t *address, uint64_t length)
{
    int result;

    do
        result = madvise((void *)address, (size_t)length, MADV_POPULATE_READ);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

/* Read a part of a file by pread, which also brings its pages into memory. Returns 0, errno, or READ_ENDED if the file
 * is shorter. On failure, `failed_at` is set to the file offset of the failure. */
static inline int read_through(int descriptor, uint64_t offset, uint64_t length, uint64_t *failed_at)
{
    unsigned char scratch[65536];
    uint64_t end = offset + length;
    ssize_t got;

    while (offset < end) {
        got = pread(descriptor, scratch, end - offset < sizeof scratch ? end - offset : sizeof scratch, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *failed_at = offset;
            return got < 0 ? errno : READ_ENDED;
        }
        offset += (uint64_t)got;
    }
    return 0;
}

/* Read a range into memory, and return when it is there. `address` is the beginning of the page at which `offset` of
 * the file is mapped. Returns 0 or an error as `read_through`; the bytes before `failed_at` are then in memory. */
static inline int read_pages(
    const uint8_t *address, uint64_t length, int descriptor, uint64_t offset, uint64_t *failed_at)
{
    int problem;
    int found;

    /* Start all reads at once, then wait for them. */
    begin_reading_pages(address, length);
    problem = populate_pages(address, length);
    if (problem == 0)
        return 0;
    /* madvise gives no offset of the failure, and older kernels do not support the option. */
    found = read_through(descriptor, offset, length, failed_at);
    if (found != 0)
        return found;
    if (problem == EINVAL || problem == ENOSYS || problem == ENOMEM || problem == EAGAIN)
        return 0; /* in memory, even if not mapped yet */
    *failed_at = offset;
    return populate_pages(address, length);
}

#endif
