/* Whether pages of a mapped file are in memory, and bringing them there. Linux only.
 *
 * Who looks at a page that cannot be read is killed (SIGBUS): of a failing device, or of a file that somebody cut off.
 * So a page is brought by a call that says why it could not, before anybody looks at it. */

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

/* How long a file is now; `unknown` if the system does not say. */
static inline uint64_t file_bytes(int descriptor, uint64_t unknown)
{
    struct stat status;

    return fstat(descriptor, &status) == 0 ? (uint64_t)status.st_size : unknown;
}

/* Have the device begin with a range, and with nothing around it: whoever waits for a page reads ahead otherwise. */
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

/* Read a part of a file in the ordinary way, which brings its pages too. 0, or why it cannot be read: errno, or READ_ENDED
 * if the file is shorter; `failed_at` then says where. */
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

/* Read a range into memory; returns when it is there. `address` is where the file is mapped from `offset` on, a page's
 * beginning. 0, or why not, as of `read_through`: what is before `failed_at` is there. */
static inline int read_pages(
    const uint8_t *address, uint64_t length, int descriptor, uint64_t offset, uint64_t *failed_at)
{
    int problem;
    int found;

    /* All of it in one go; then wait for it. */
    begin_reading_pages(address, length);
    problem = populate_pages(address, length);
    if (problem == 0)
        return 0;
    /* It does not say where, and older kernels know nothing of it. */
    found = read_through(descriptor, offset, length, failed_at);
    if (found != 0)
        return found;
    if (problem == EINVAL || problem == ENOSYS || problem == ENOMEM || problem == EAGAIN)
        return 0; /* there, if not mapped yet */
    *failed_at = offset;
    return populate_pages(address, length);
}

#endif
