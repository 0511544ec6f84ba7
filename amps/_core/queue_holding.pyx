"""Who holds which messages of a queue, and how they come back (queues.md §5, §8, §11).

The second of three layers of a queue, between what is in it (queue_contents.pyx) and who gets it next
(queue_machine.pyx). A message that was delivered is held by a member, a subscription's place in this queue, until it is
acknowledged, cancelled, or its lease or the subscription ends. It then leaves the queue or comes back to it;
one that comes back too often, or too late, expires. What is delivered at most once has left already, and is held only
to count in its subscription's backlog.

Invariants
- Only a message that is LEASED or DELIVERED has a holder; it is in that member's list, in the order in which leases
  end, and counts once in the subscription's `outstanding`.
- `ready` counts the members whose subscription may get one more; the same for each cursor.
- No lease ends before `lease_due_ns`.
- A membership lives as long as it is current, or holds messages; until then it is in `holders`.
"""

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_contents cimport QueueContents, QueueShared
from amps._core.queue_lease_order cimport LeaseOrder
from amps._core.queue_members cimport Membership, Subscriber
from amps._core.queue_records cimport (
    QUEUE_CANCEL,
    QUEUE_EXTEND_LEASE,
    REASON_MAX_CANCELS,
    REASON_MAX_DELIVERIES,
    REASON_TIME_LIMIT,
)
from amps._core.queue_slots cimport (
    NEVER,
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_DELIVERED,
    SLOT_INACTIVE,
    SLOT_LEASE_ENDS,
    SLOT_LEASED,
    QueueArena,
    QueueSlot,
)

cdef enum:
    COUNT_MAX = 65535              # deliveries and cancels of one message


cdef class QueueHolding(QueueContents):

    def __init__(self, QueueArena arena not None, uint32_t number, counters, settings, QueueShared shared not None):
        """settings: see _QueueSettings in queue_book.pyi."""
        QueueContents.__init__(self, arena, number, counters, settings, shared)
        self.strict = settings.strict_leasing
        self.lease_period_ns = settings.lease_period_ns or 0
        self.member_limit = settings.max_per_subscription_backlog
        self.max_deliveries = settings.max_deliveries
        self.max_cancels = settings.max_cancels
        self.members = []
        self.holders = []
        self.ready = 0
        self.lease_due_ns = NEVER
        self.leases = LeaseOrder(arena, self.lease_period_ns)

    # --- acknowledgements -----------------------------------------------------------------------------

    cdef int acknowledge_slot(
        self, uint64_t client, uint32_t slot, uint32_t action, uint64_t extension_ns, uint64_t now_ns
    ) except -1:
        """Apply an acknowledgement to a message. Returns an Outcome."""
        cdef int state = self.slots[slot].state
        cdef Membership holder
        self.now_ns = now_ns
        if state == SLOT_INACTIVE:
            if not self.defers(action):
                return OUTCOME_NOTHING
            publisher_id, sequence = self.bookmark(slot)
            # Who tells of removals reads them in the journal: it knows of each once.
            known = (publisher_id, sequence) in self.deferred
            self.defer(publisher_id, sequence, now_ns, client)
            return OUTCOME_NOTHING if known else OUTCOME_DEFERRED
        if state == SLOT_LEASED or state == SLOT_DELIVERED:
            holder = self.holder_of(slot)
            if holder.subscriber.client != client and (self.strict or action == QUEUE_EXTEND_LEASE):
                return OUTCOME_REFUSED
            if action == QUEUE_EXTEND_LEASE:
                if state == SLOT_DELIVERED:
                    return OUTCOME_NOTHING
                self.extend(holder, slot, now_ns + extension_ns)
                return OUTCOME_EXTENDED
            if state == SLOT_DELIVERED:
                self.free_delivered(slot)
                return OUTCOME_FREED
            if action == QUEUE_CANCEL:
                if self.slots[slot].cancels < COUNT_MAX:
                    self.slots[slot].cancels += 1
                self.let_go(slot)
                return OUTCOME_EXPIRED if self.give_back(slot, True) else OUTCOME_RETURNED
            self.let_go(slot)
        elif not self.defers(action):
            return OUTCOME_NOTHING
        self.leave(slot)
        return OUTCOME_REMOVED

    # --- holding --------------------------------------------------------------------------------------

    cdef uint64_t begin_lease(self, uint32_t slot) except? 0xFFFFFFFFFFFFFFFF:
        """A message is leased from now on; `hold` says to whom. Returns when that ends, 0 = it does not."""
        cdef QueueSlot* message = &self.slots[slot]
        cdef uint64_t lease_until_ns = 0
        message.state = SLOT_LEASED
        message.lease_ns = self.now_ns
        if message.deliveries < COUNT_MAX:
            message.deliveries += 1
        if self.lease_period_ns:
            lease_until_ns = message.lease_ns = self.now_ns + self.lease_period_ns
            message.flags |= SLOT_LEASE_ENDS
            if lease_until_ns < self.lease_due_ns:
                self.lease_due_ns = lease_until_ns
                self.shared.expects(self, lease_until_ns)
        self.leases.give(slot, self.now_ns, self.counters.leased)
        self.counters.oldest_lease_ns = self.leases.oldest_ns
        self.counters.leased += 1
        return lease_until_ns

    cdef int extend(self, Membership member, uint32_t slot, uint64_t end_ns) except -1:
        self.unhold(member, slot)
        self.leases.extend(slot)
        self.slots[slot].lease_ns = end_ns
        self.slots[slot].flags |= SLOT_LEASE_ENDS
        self.hold(member, slot)
        self.lease_due_ns = min(self.lease_due_ns, end_ns)
        return self.shared.expects(self, end_ns)

    cdef Membership holder_of(self, uint32_t slot):
        return <Membership>self.shared.memberships[self.slots[slot].holder]

    cdef int hold(self, Membership member, uint32_t slot) except -1:
        """Enter a slot in the list of what a member holds, by the end of its lease."""
        cdef uint32_t before = member.last
        cdef uint64_t end = self.lease_end(slot)
        while before != NO_SLOT and self.lease_end(before) > end:
            before = self.slots[before].previous
        self.slots[slot].previous = before
        if before == NO_SLOT:
            self.slots[slot].next = member.first
            member.first = slot
        else:
            self.slots[slot].next = self.slots[before].next
            self.slots[before].next = slot
        if self.slots[slot].next == NO_SLOT:
            member.last = slot
        else:
            self.slots[self.slots[slot].next].previous = slot
        self.slots[slot].holder = member.number
        member.held += 1
        return 0

    cdef uint64_t lease_end(self, uint32_t slot) noexcept nogil:
        return self.slots[slot].lease_ns if self.slots[slot].flags & SLOT_LEASE_ENDS else NEVER

    cdef int unhold(self, Membership member, uint32_t slot) except -1:
        cdef uint32_t previous = self.slots[slot].previous
        cdef uint32_t following = self.slots[slot].next
        if previous == NO_SLOT:
            member.first = following
        else:
            self.slots[previous].next = following
        if following == NO_SLOT:
            member.last = previous
        else:
            self.slots[following].previous = previous
        member.held -= 1
        return 0

    cdef int let_go(self, uint32_t slot) except -1:
        """A leased message has no holder any more; its state is the caller's to set."""
        cdef Membership member = self.holder_of(slot)
        self.unhold(member, slot)
        self.leases.end(slot)
        self.counters.oldest_lease_ns = self.leases.oldest_ns
        self.slots[slot].flags &= <unsigned char>~SLOT_LEASE_ENDS
        self.counters.leased -= 1
        self.freed(member)
        return 0

    cdef int free_delivered(self, uint32_t slot) except -1:
        """A message delivered at most once counts in no backlog any more."""
        cdef Membership member = self.holder_of(slot)
        self.unhold(member, slot)
        self.counters.delivered -= 1
        self.gone(slot)
        self.freed(member)
        return 0

    cdef int freed(self, Membership member) except -1:
        """A member holds one message less."""
        self.count_backlog(member.subscriber, -1)
        if not member.current and member.held == 0:
            self.holders.remove(member)
            self.shared.forget_membership(member)
        if self.ready or self.barriers.count:
            self.mark_dirty()
        return 0

    cdef int count_backlog(self, Subscriber subscriber, int change) except -1:
        """A subscription holds more or fewer messages: it may have room now, in all its queues, or none any more."""
        cdef bint before = subscriber.outstanding < subscriber.limit
        cdef bint after
        cdef Membership member
        subscriber.outstanding += change
        after = subscriber.outstanding < subscriber.limit
        if before != after:
            for member in subscriber.memberships:
                (<QueueHolding>self.shared.queues[member.queue]).member_became(member, after)
        return 0

    cdef int give_back(self, uint32_t slot, bint cancelled) except -1:
        """A message that was leased comes back, or expires (queues.md §11, `ret`). 1: it has expired."""
        cdef uint32_t reasons = 0
        if self.slots[slot].expires_ns <= self.now_ns:
            reasons |= REASON_TIME_LIMIT
        if cancelled and self.max_cancels and self.slots[slot].cancels >= self.max_cancels:
            reasons |= REASON_MAX_CANCELS
        if self.max_deliveries and self.slots[slot].deliveries >= self.max_deliveries:
            reasons |= REASON_MAX_DELIVERIES
        self.slots[slot].state = SLOT_AVAILABLE
        if reasons:
            self.expire(slot, reasons)
            return 1
        self.offer(slot)
        return 0

    cdef int return_all(self, Membership member, uint64_t now_ns) except -1:
        """A subscription has ended: what it held comes back, or is free."""
        cdef uint32_t slot
        self.now_ns = now_ns
        while member.first != NO_SLOT:
            slot = member.first
            if self.slots[slot].state == SLOT_DELIVERED:
                self.free_delivered(slot)
            else:
                self.let_go(slot)
                self.give_back(slot, False)
        return 0

    # --- members --------------------------------------------------------------------------------------

    cdef int add_member(self, Membership member) except -1:
        """A subscription gets messages from now on."""
        cdef uint64_t at = <uint64_t>len(self.members)
        while at and (<Membership>self.members[at - 1]).subscriber.order > member.subscriber.order:
            at -= 1
        self.members.insert(at, member)
        if member not in self.holders:
            self.holders.append(member)
        member.current = True
        member.cursor.members += 1
        self.counters.members += 1
        if member.subscriber.outstanding < member.subscriber.limit:
            self.member_became(member, True)
        return self.mark_dirty()

    cdef int drop_member(self, Membership member) except -1:
        """A subscription gets nothing more; what it holds, it holds."""
        self.members.remove(member)
        member.current = False
        member.cursor.members -= 1
        self.counters.members -= 1
        if member.subscriber.outstanding < member.subscriber.limit:
            self.member_became(member, False)
        if member.held == 0:
            self.holders.remove(member)
            self.shared.forget_membership(member)
        return self.mark_dirty()

    cdef int member_became(self, Membership member, bint ready) except -1:
        """A current member may get a message now, or may not any more."""
        if ready:
            self.ready += 1
            member.cursor.ready += 1
            return self.mark_dirty()
        self.ready -= 1
        member.cursor.ready -= 1
        return 0

    # --- time -----------------------------------------------------------------------------------------

    cdef uint64_t due_ns(self) noexcept:
        return min(self.lease_due_ns, QueueContents.due_ns(self))

    cdef int pass_time(self, uint64_t now_ns) except -1:
        """Leases end, then messages expire."""
        self.now_ns = now_ns
        if self.lease_due_ns <= now_ns:
            self.end_leases()
        return QueueContents.pass_time(self, now_ns)

    cdef int end_leases(self) except -1:
        cdef Membership member
        cdef uint32_t slot
        self.lease_due_ns = NEVER
        for member in list(self.holders):
            while member.first != NO_SLOT and self.lease_end(member.first) <= self.now_ns:
                slot = member.first
                self.counters.expired_leases += 1
                self.let_go(slot)
                self.give_back(slot, False)
            if member.first != NO_SLOT:
                self.lease_due_ns = min(self.lease_due_ns, self.lease_end(member.first))
        return 0
