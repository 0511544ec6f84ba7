/* Which processor a thread runs on, and how it gets away from there. For placement.pyx and the readings of transports. */
#ifndef AMPS_PROCESSORS_H
#define AMPS_PROCESSORS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdint.h>

/* One more than the processor's number; 0 if the system does not tell. No system call. */
static inline uint64_t processor_mark(void) { return (uint64_t)(sched_getcpu() + 1); }

typedef cpu_set_t processors_t;
static inline void no_processors(processors_t *processors) { CPU_ZERO(processors); }
static inline void add_processor(processors_t *processors, uint64_t mark) {
    if (mark != 0 && mark <= CPU_SETSIZE) CPU_SET((int)mark - 1, processors);
}

/* Send the calling thread to a processor outside the set. It may go on wherever it might before, and what that is is
 * asked for each time: an administrator can change it. (A control group that grows afterwards gives it no more, as with
 * taskset.) 0: there is no other one for it.
 */
static int leave_processors(const processors_t *busy) {
    cpu_set_t allowed, others;
    int processor;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    others = allowed;
    for (processor = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET(processor, busy)) CPU_CLR(processor, &others);
    if (sched_setaffinity(0, sizeof others, &others) != 0) return 0; /* so, too, if none is left */
    sched_setaffinity(0, sizeof allowed, &allowed);
    return 1;
}

#endif
