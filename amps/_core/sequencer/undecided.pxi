# Transactions about which this instance cannot decide yet, because another one may have recorded them (replication.md
# 25.93), and when it may refuse them after all (25.94).
#
# A refusal takes sequences. If another instance has recorded the transaction under the same sequences, the two logs
# differ for good. So time alone decides nothing. A refusal needs word that what this instance has of the log of each
# instance in question is complete, up to a moment long after the transaction was first tried here: had one of them
# recorded it, it would be here. The instances in question are the *partners* (those that replicate to this one, and
# get what it has), and the owners of the named messages.
#
# The replication process passes that word on (KIND_LOG_COMPLETE), about one instance at a time.
#
# Invariants
# - A first try that is forgotten (a restart, too many of them) only delays a refusal.
# - A statement holds although its link has ended since: it is about the past.

from libc.stdint cimport uint64_t

cdef enum:
    FIRST_TRIES_MAX = 10_000

# So long after the first try the log of another instance must be complete, for an undecided transaction to be refused.
# This is more than a connection that its client has left lives on at that instance.
cdef uint64_t UNDECIDED_NS = 60_000_000_000


cdef class UndecidedTransactions:
    """What a refusal of an undecided transaction is based on."""

    cdef dict first_tries          # (publisher id, first sequence) -> UNIX time in ns
    cdef dict complete             # name of an instance -> UNIX time in ns up to which its log is here
    cdef object partners           # names; None: some are not known now

    def __init__(self):
        self.first_tries = {}
        self.complete = {}
        self.partners = None

    def hear(self, str name not None, uint64_t age_ns, partners, uint64_t now_ns):
        """What was in the log of an instance `age_ns` ago is here. partners: names; None: some are not known now."""
        self.complete[name] = max(self.complete.get(name, 0), now_ns - min(age_ns, now_ns))
        self.partners = partners

    cdef list awaited(self, uint64_t publisher_id, uint64_t first, set owners, uint64_t limit_ns, uint64_t now_ns):
        """The names of the instances of which more must be known before a transaction may be refused; an empty name
        stands for a partner that is not connected. No names: it may be refused.
        """
        cdef uint64_t needed_ns
        key = publisher_id, first
        if key not in self.first_tries:
            if len(self.first_tries) >= FIRST_TRIES_MAX:
                del self.first_tries[next(iter(self.first_tries))]
            self.first_tries[key] = now_ns
        needed_ns = <uint64_t>self.first_tries[key] + min(limit_ns, UNDECIDED_NS)
        names = owners.union(("",) if self.partners is None else self.partners)
        return sorted([name for name in names if <uint64_t>self.complete.get(name, 0) < needed_ns])

    cdef int forget(self, uint64_t publisher_id, uint64_t first) except -1:
        """A transaction is decided."""
        if self.first_tries:
            self.first_tries.pop((publisher_id, first), None)
        return 0
