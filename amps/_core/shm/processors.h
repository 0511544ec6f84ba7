/* The processor that a thread runs on, and moving a thread to another one. For placement.pxi and InstanceView. */
#ifndef AMPS_PROCESSORS_H
#define AMPS_PROCESSORS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdint.h>

/* Number of the current processor plus 1; 0 if it is not known. Makes no system call. */
static inline uint64_t processor_mark(void) { return (uint64_t)(sched_getcpu() + 1); }

typedef cpu_set_t processors_t;
static inline void no_processors(processors_t *processors) { CPU_ZERO(processors); }
static inline void add_processor(processors_t *processors, uint64_t mark) {
    if (mark != 0 && mark <= CPU_SETSIZE) CPU_SET((int)mark - 1, processors);
}

/* Move the calling thread to a processor outside the set. Its affinity is restored afterwards; it is read on each call,
 * because an administrator can change it. (If the thread's control group is given more processors later, the thread
 * cannot use them, as after taskset.) Returns 0 if there is no other processor for it.
 */
static int leave_processors(const processors_t *busy) {
    cpu_set_t allowed, others;
    int processor;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    others = allowed;
    for (processor = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET(processor, busy)) CPU_CLR(processor, &others);
    if (sched_setaffinity(0, sizeof others, &others) != 0) return 0; /* fails also for an empty set */
    sched_setaffinity(0, sizeof allowed, &allowed);
    return 1;
}

#endif
