# What a queue that spans instances has besides its messages: their owners, and what this instance wants of other
# owners (replication.md §14, §24.8).
#
# Each instance has its own copy of each message, and exactly one instance owns it. Only the owner delivers. In the
# copies of the others, a message that would be available is in state ELSEWHERE. A message changes its owner by a
# *transfer*, which is a record of the log of the instance that decides it: the owner grants a request, or a proxy acts
# for an owner that cannot be reached. Both apply it at once, and every other instance when the record arrives.
#
# A subscription with free backlog, but without an available message, makes this instance look for messages of other
# owners (`look`). It walks in the order of the log, a few thousand slots in a turn; with priorities it names the best
# of these (candidates.pxi). It names a message in a request when the message has been here for longer than
# acknowledgements of such messages usually take, and again after 1, 2, 4, … seconds, at most 30. A request names more
# messages than it wants, because the owner may have delivered the first ones itself. When all wanted messages were
# granted, the rest is wanted as if it had not been named. There is no further request until then, or for a second: so
# messages move in the order of the log, or of their priorities.
#
# A transfer may come before its message, by another way. It is kept as long as an acknowledgement would be.
#
# Invariants
# - `foreign` counts the messages of the queue that another instance owns, in any state.
# - While ELSEWHERE, `lease_ns` of a slot is the time since which this instance waits for the owner, `holder` the time
#   of the next request (0: none was made), and its flags have the number of requests.
# - A message that this instance has lost is delivered no more, but a lease that runs ends by itself.

from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef enum:
    SLOTS_PER_LOOK = 4096
    SLOTS_PER_RANKED_LOOK = 16384  # with priorities, where all of them are compared before any is named
    NAMED_MIN = 256                # messages that a request may name, however few are wanted
    NAMED_MAX = 1024
    REQUESTS_COUNTED_MAX = 7

cdef uint64_t LOOK_GAP_NS = 1_000_000
cdef uint64_t REPEAT_FIRST_NS = 1_000_000_000
cdef uint64_t REPEAT_MAX_NS = 30_000_000_000
cdef uint64_t REQUEST_UNIT_NS = 16_000_000      # of the times in `holder`, which reach for two years
cdef double TYPICAL_FIRST_NS = 1e9
cdef double TYPICAL_MIN_NS = 1e7
cdef double TYPICAL_MAX_NS = 3e10      # a message that waited longer had no consumer, and says nothing about its owner
cdef double TYPICAL_WEIGHT = 0.1


cdef class QueueSpan:

    def __init__(self, Queue queue not None, settings, Ownerships ownerships not None):
        """settings: of the queue; see _QueueSettings in manager.pyi."""
        self.queue = queue
        self.slots = queue.slots
        self.ownerships = ownerships
        self.bookmarks = BookmarkTable(queue.arena)
        self.domain = settings.domain
        self.initial_owner = -1
        if settings.initial_owner is not None:
            self.initial_owner = ownerships.owner(settings.initial_owner)
        self.early = {}
        self.is_proxied = False
        self.typical_ns = TYPICAL_FIRST_NS
        self.look_ns = NEVER
        self.not_before_ns = 0
        self.at = NO_SLOT
        self.soonest_ns = NEVER
        self.wanted = 0
        self.wanted_until_ns = 0
        self.named = []
        memset(&self.granted, 0, sizeof(QueueSlot))
        self.began_ns = 0

    # --- messages enter and leave -----------------------------------------------------------------------

    cdef int enter(self, uint32_t slot, uint32_t origin) except -1:
        """Give a new message its owner; its bookmark is set. origin: number of the instance of its publish."""
        cdef uint32_t owner = origin if self.initial_owner < 0 else <uint32_t>self.initial_owner
        cdef uint32_t epoch = 0
        cdef bint is_proxied = False
        cdef tuple found
        self.bookmarks.add(slot)
        self.slots[slot].ownership = self.ownerships.take(owner, 0, False)
        if self.early:
            found = self.early.pop(self.queue.bookmark(slot), None)
            if found is not None:
                owner, epoch, is_proxied, _ = found
                self._own(slot, owner, epoch, is_proxied)
        if not self.owns(slot):
            self.queue.counters.foreign += 1
        return 0

    cdef int restore(self, uint32_t slot, str owner, uint32_t epoch, bint is_proxied) except -1:
        """Give a message of a checkpoint its owner; its bookmark is set. owner: None for ownership 0."""
        self.bookmarks.add(slot)
        if owner is not None:
            self.slots[slot].ownership = self.ownerships.take(self.ownerships.owner(owner), epoch, is_proxied)
        if not self.owns(slot):
            self.queue.counters.foreign += 1
        return 0

    cdef int left(self, uint32_t slot) except -1:
        """A message is no longer in the queue."""
        self.bookmarks.remove(slot)
        if not self.owns(slot):
            self.queue.counters.foreign -= 1
        self.ownerships.give_back(self.slots[slot].ownership)
        self.slots[slot].ownership = 0
        return 0

    cdef bint owns(self, uint32_t slot) noexcept nogil:
        """Whether this instance owns a message."""
        return self.ownerships.table[self.slots[slot].ownership].owner == 0

    cdef uint32_t find(self, uint64_t publisher_id, uint64_t sequence) noexcept:
        """The slot of the message with a bookmark; NO_SLOT: it is not in the queue."""
        cdef uint32_t publisher = self.queue.shared.known_publisher(publisher_id)
        return NO_SLOT if publisher == NO_PUBLISHER else self.bookmarks.find(publisher, sequence)

    cdef int wait_for_owner(self, uint32_t slot) except -1:
        """Let a message that would be available wait for its owner, which is another instance."""
        cdef QueueSlot* message = &self.slots[slot]
        message.state = SLOT_ELSEWHERE
        message.lease_ns = self.queue.now_ns
        self._forget_requests(message)
        if self.queue.ready:
            self.look_at(self._due_ns(message))
        return 0

    cdef int acknowledged(self, uint32_t slot) except -1:
        """A message leaves because another instance says so: learn how long this takes (queues.md D-22)."""
        cdef QueueSlot* message = &self.slots[slot]
        cdef double took_ns
        if message.state == SLOT_ELSEWHERE and 0 < message.lease_ns <= self.queue.now_ns:
            took_ns = min(<double>(self.queue.now_ns - message.lease_ns), TYPICAL_MAX_NS)
            self.typical_ns += TYPICAL_WEIGHT * (took_ns - self.typical_ns)
        return 0

    # --- transfers --------------------------------------------------------------------------------------

    cdef int _own(self, uint32_t slot, uint32_t owner, uint32_t epoch, bint is_proxied) except -1:
        """Set the owner of a message if the transfer supersedes the last one. 1: it does."""
        cdef uint16_t before = self.slots[slot].ownership
        if not self.ownerships.supersedes(owner, epoch, is_proxied, before):
            return 0
        self.slots[slot].ownership = self.ownerships.take(owner, epoch, is_proxied)
        self.ownerships.give_back(before)
        return 1

    cdef int transfer(self, uint32_t slot, uint32_t owner, uint32_t epoch, bint is_proxied) except -1:
        """Apply a transfer of a message."""
        cdef bint was_own = self.owns(slot)
        cdef int state = self.slots[slot].state
        if not self._own(slot, owner, epoch, is_proxied):
            return 0
        if was_own and owner:
            self.queue.counters.foreign += 1
            self.queue.counters.transferred_out += 1
            if state == SLOT_AVAILABLE:
                self.wait_for_owner(slot)
        elif owner == 0 and not was_own:
            self.queue.counters.foreign -= 1
            self.queue.counters.transferred_in += 1
            self._granted(&self.slots[slot])
            if state == SLOT_ELSEWHERE:
                self.queue.open_(slot)
        elif state == SLOT_ELSEWHERE:
            self.wait_for_owner(slot)
        return 0

    cdef int transfer_early(
        self, uint64_t publisher_id, uint64_t sequence, uint32_t owner, uint32_t epoch, bint is_proxied,
        uint64_t now_ns
    ) except -1:
        """Keep a transfer whose message has not come yet."""
        cdef tuple bookmark = (publisher_id, sequence)
        cdef tuple known = self.early.pop(bookmark, None)  # the dict stays in the order of expiration
        cdef uint16_t before
        if known is not None:
            before = self.ownerships.take(known[0], known[1], known[2])
            if not self.ownerships.supersedes(owner, epoch, is_proxied, before):
                owner, epoch, is_proxied, _ = known
            self.ownerships.give_back(before)
        self.early[bookmark] = owner, epoch, is_proxied != 0, now_ns + self.queue.deferred_ns
        return self.queue.shared.expects(self.queue, self.due_ns())

    cdef int decide(self, uint32_t slot, uint32_t owner, bint is_proxied) except -1:
        """Give a message another owner, and note this for the journal."""
        cdef Ownership* before = &self.ownerships.table[self.slots[slot].ownership]
        cdef uint32_t epoch = before.epoch + 1
        self.queue.output.transfer(
            self.queue.number, self.queue.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence,
            self.slots[slot].position, before.owner, owner, epoch, is_proxied,
        )
        return self.transfer(slot, owner, epoch, is_proxied)

    cdef int published_elsewhere(self, uint32_t slot, uint32_t origin) except -1:
        """A copy of a message that was published here came from another instance to which it was published, too: its
        publisher had failed over. Of both, the one whose name comes first becomes the only owner (25.76). A message
        that a client holds here stays.
        """
        cdef int state = self.slots[slot].state
        if (
            self.initial_owner < 0 and origin and self.slots[slot].ownership == 0 and state != SLOT_LEASED
            and state != SLOT_DELIVERED and self.ownerships.names[origin] < self.ownerships.names[0]
        ):
            self.decide(slot, origin, False)
        return 0

    cdef uint64_t grant(
        self, uint32_t requester, const uint64_t* bookmarks, uint64_t count, uint64_t wanted
    ) except? 0xFFFFFFFFFFFFFFFF:
        """Give a requester some of the messages that it named, by pairs of publisher id and sequence: those that no
        subscription here can take. Returns how many. A message beyond the target depth becomes active for that.
        """
        cdef uint64_t granted = 0
        cdef uint64_t at
        cdef uint32_t slot
        cdef uint32_t owner
        if requester == 0:
            return 0
        for at in range(count):
            if granted == wanted:
                break
            slot = self.find(bookmarks[2 * at], bookmarks[2 * at + 1])
            if slot == NO_SLOT:
                continue
            owner = self.ownerships.table[self.slots[slot].ownership].owner
            if self.slots[slot].state == SLOT_INACTIVE and owner == 0:
                self.queue.activate_until(slot)
            if self.slots[slot].state == SLOT_AVAILABLE:
                if not self.queue.may_take(slot):
                    self.decide(slot, requester, False)
                    granted += 1
            elif (
                self.slots[slot].state == SLOT_ELSEWHERE and self.is_proxied and owner != requester
                and not self.ownerships.is_reachable(owner)
            ):
                self.decide(slot, requester, True)
                granted += 1
        return granted

    # --- what this instance wants -----------------------------------------------------------------------

    cdef uint64_t due_ns(self) noexcept:
        """The earliest time at which `pass_time` has something to do."""
        cdef uint64_t due = self.look_ns
        for _, _, _, until in self.early.values():
            return min(due, <uint64_t>until)  # in the order of expiration
        return due

    cdef int pass_time(self) except -1:
        """Forget transfers whose messages have not come in time, and look for messages again if it is time."""
        while self.early:
            bookmark, (_, _, _, until) = next(iter(self.early.items()))
            if until > self.queue.now_ns:
                break
            del self.early[bookmark]
        if self.look_ns <= self.queue.now_ns:
            self.queue.mark_dirty()
        return 0

    cdef void prompt(self) noexcept:
        """Look for messages when the queue is served next."""
        self.look_ns = 0

    cdef int look_at(self, uint64_t due_ns) except -1:
        """Look for messages at that time, if not before."""
        if due_ns < self.look_ns:
            self.look_ns = due_ns
            self.queue.shared.expects(self.queue, due_ns)
        return 0

    cdef uint64_t room(self) except? 0xFFFFFFFFFFFFFFFF:
        """How many messages the subscriptions here could take."""
        cdef Queue queue = self.queue
        cdef Membership member
        cdef uint64_t held = queue.counters.leased + queue.counters.delivered
        cdef uint64_t room = 0
        if held >= queue.max_backlog:
            return 0
        for member in queue.members:
            if member.subscriber.outstanding < member.subscriber.limit:
                room += member.subscriber.limit - member.subscriber.outstanding
        return min(room, queue.max_backlog - held)

    cdef bint look(self) except -1:
        """Look for messages of other owners that a subscription here could take, when no message is available: request
        them, or take those of owners that cannot be reached, if this instance may. True: some were taken.
        """
        cdef Queue queue = self.queue
        cdef uint64_t now_ns = queue.now_ns
        cdef uint64_t room
        cdef uint64_t taken = 0
        cdef list named
        cdef uint64_t due_ns
        cdef uint64_t barrier = NEVER
        cdef uint32_t looked_at = 0
        cdef uint32_t looks_max = SLOTS_PER_RANKED_LOOK if queue.has_priority else SLOTS_PER_LOOK
        cdef uint32_t slot
        cdef uint32_t owner
        cdef Candidates found
        cdef Candidates takes
        if self.look_ns > now_ns:
            return False
        self.look_ns = NEVER
        if queue.counters.foreign == 0:
            return False
        if now_ns < self.not_before_ns:
            self.look_at(self.not_before_ns)
            return False
        if now_ns >= self.wanted_until_ns:
            self.wanted = 0  # what has not come by now is requested again in its time
            self.named = []
        room = self.room()
        if room == 0:
            return False
        if self.wanted:
            self.look_at(self.wanted_until_ns)
            return False
        found = Candidates(queue.has_priority, min(<uint64_t>NAMED_MAX, max(<uint64_t>NAMED_MIN, 4 * room)))
        takes = Candidates(queue.has_priority, room)
        if queue.barriers.count:
            barrier = queue.barriers.entries[0].position
        slot = self.at
        if slot == NO_SLOT:
            slot = queue.head
            self.soonest_ns = NEVER
        while slot != NO_SLOT and looked_at < looks_max and not found.stops_walk() and not takes.stops_walk():
            if self.slots[slot].position > barrier:
                slot = NO_SLOT
                break
            looked_at += 1
            if self.slots[slot].state == SLOT_ELSEWHERE and queue.is_wanted(slot):
                owner = self.ownerships.table[self.slots[slot].ownership].owner
                if self.ownerships.is_reachable(owner):
                    due_ns = self._due_ns(&self.slots[slot])
                    if due_ns > now_ns:
                        self.soonest_ns = min(self.soonest_ns, due_ns)
                    else:
                        found.add(owner, slot, &self.slots[slot])
                elif self.is_proxied and not queue.output.frozen:
                    takes.add(owner, slot, &self.slots[slot])
            slot = queue.arena.next_slot(slot)
        for _, taken_slot in takes.best():
            self.decide(taken_slot, 0, True)
            taken += 1
        named = found.best()
        if named:
            self._request(named, room)
            self.soonest_ns = min(self.soonest_ns, now_ns + REPEAT_FIRST_NS)
        self.not_before_ns = now_ns + LOOK_GAP_NS
        if slot != NO_SLOT and looked_at == looks_max and not found.was_cut and not takes.was_cut:
            self.at = slot
            self.look_at(self.not_before_ns)
        else:
            self.at = NO_SLOT
            if taken:
                self.look_at(self.not_before_ns)
            elif self.soonest_ns != NEVER:
                self.look_at(max(self.soonest_ns, self.not_before_ns))
        return taken > 0

    cdef int _request(self, list found, uint64_t room) except -1:
        """Request messages, given as (owner, slot) in the order of delivery, from their owners; the first `room` are
        wanted.
        """
        cdef dict by_owner = {}
        cdef dict wanted_of = {}
        cdef list slots
        cdef uint32_t slot
        cdef uint32_t at
        cdef uint64_t count
        cdef bytearray bookmarks
        cdef uint64_t* words
        memset(&self.granted, 0, sizeof(QueueSlot))
        self.wanted_until_ns = self.queue.now_ns + REPEAT_FIRST_NS
        for owner, named in found:
            by_owner.setdefault(owner, []).append(named)
        for owner, _ in found[:room]:
            wanted_of[owner] = wanted_of.get(owner, 0) + 1
        for owner, count in wanted_of.items():
            slots = by_owner[owner]
            bookmarks = bytearray(16 * len(slots))
            words = <uint64_t*><char*>bookmarks
            for at in range(<uint32_t>len(slots)):
                slot = slots[at]
                words[2 * at] = self.queue.shared.publisher_id(self.slots[slot].publisher)
                words[2 * at + 1] = self.slots[slot].sequence
                self._note_request(&self.slots[slot])
                self.named.append((slot, self.slots[slot].position))
            self.wanted += count
            self.queue.shared.wishes.append(
                (self.queue.number, self.ownerships.names[owner], bytes(bookmarks), count)
            )
        return 0

    cdef int _granted(self, const QueueSlot* message) except -1:
        """One more of the wanted messages has come."""
        cdef uint32_t slot
        cdef uint64_t of_named
        if self.wanted == 0:
            return 0
        self.wanted -= 1
        if self.granted.position == 0 or is_before(&self.granted, message, self.queue.has_priority):
            self.granted = message[0]
        if self.wanted == 0:
            for slot, of_named in self.named:
                if (
                    self.slots[slot].position == of_named and self.slots[slot].state == SLOT_ELSEWHERE
                    and is_before(&self.granted, &self.slots[slot], self.queue.has_priority)
                ):
                    self._forget_requests(&self.slots[slot])
            self.named = []
            self.prompt()
            self.queue.mark_dirty()
        return 0

    cdef void _forget_requests(self, QueueSlot* message) noexcept nogil:
        message.holder = 0
        message.flags &= <unsigned char>~SLOT_REQUESTS

    cdef uint64_t _due_ns(self, const QueueSlot* message) noexcept nogil:
        """The time from which on a message may be requested, or requested again."""
        if message.holder:
            return self.began_ns + message.holder * REQUEST_UNIT_NS
        return message.lease_ns + <uint64_t>max(self.typical_ns, TYPICAL_MIN_NS)

    cdef void _note_request(self, QueueSlot* message) noexcept nogil:
        cdef uint32_t requests = (message.flags & SLOT_REQUESTS) // SLOT_REQUEST
        cdef uint64_t due_ns = self.queue.now_ns + min(REPEAT_FIRST_NS << requests, REPEAT_MAX_NS)
        if self.began_ns == 0:
            self.began_ns = self.queue.now_ns
        message.holder = <uint32_t>min((due_ns - self.began_ns) // REQUEST_UNIT_NS + 1, <uint64_t>0xFFFFFFFF)
        if requests < REQUESTS_COUNTED_MAX:
            message.flags += SLOT_REQUEST

    cdef void block_dropped(self, uint32_t block, uint32_t next_slot) noexcept nogil:
        """Refer to a block no longer; `next_slot` is the first slot of the block behind it."""
        if self.at != NO_SLOT and self.at // BLOCK_SLOTS == block:
            self.at = next_slot
