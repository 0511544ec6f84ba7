# Places in the stream of one publisher, up to which it can be acknowledged while it waits for a destination.
#
# Messages are not tracked one by one. Whenever input was processed, a checkpoint notes the highest sequence for which
# an acknowledgement was requested, and the place of the ring. Once the core has read the ring up to there, the log
# position written by then is an upper bound of the message's place. If there are too many, the one whose neighbours are
# nearest to each other is dropped: the next one covers its messages. So they stay spread over all that is outstanding.
#
# Invariant: the sequences, places and bounds rise, and the checkpoints whose bound is known come first.


@cython.final
cdef class AckCheckpoints:
    """The checkpoints of one connection."""

    def __init__(self):
        self.count = 0

    def __len__(self):
        return self.count

    def note(self, uint64_t ring_position, uint64_t sequence, uint64_t requests):
        """Note the newest place: `requests` acknowledgements were requested so far."""
        if self.count and self.entries[self.count - 1].ring_position >= ring_position:
            return
        if self.count == CHECKPOINTS_MAX:
            self.drop_one(ring_position)
        self.entries[self.count].ring_position = ring_position
        self.entries[self.count].log_position = 0
        self.entries[self.count].sequence = sequence
        self.entries[self.count].requests = requests
        self.count += 1

    cdef void drop_one(self, uint64_t next_position) noexcept:
        """Make room for a checkpoint at `next_position`. The first one stays: it is acknowledged next."""
        cdef uint32_t dropped = 1
        cdef uint32_t at
        cdef uint64_t behind
        cdef uint64_t gap
        cdef uint64_t least = <uint64_t>-1
        for at in range(1, CHECKPOINTS_MAX):
            behind = self.entries[at + 1].ring_position if at + 1 < CHECKPOINTS_MAX else next_position
            gap = behind - self.entries[at - 1].ring_position
            if gap < least:
                least = gap
                dropped = at
        self.count -= 1
        for at in range(dropped, self.count):
            self.entries[at] = self.entries[at + 1]

    def resolve(self, uint64_t consumed, uint64_t written):
        """The core has read the ring up to `consumed`, and written the log up to `written` by then. True: the bounds of
        all checkpoints are known.
        """
        cdef uint32_t at = self.count
        while at and self.entries[at - 1].log_position == 0:
            at -= 1
        while at < self.count and self.entries[at].ring_position <= consumed:
            self.entries[at].log_position = written
            at += 1
        return at == self.count

    def take_persisted(
        self, Destinations destinations not None, uint64_t publisher_id, uint64_t durable, uint64_t ring_position
    ):
        """Take the checkpoints up to a place of the ring that are persisted. Returns sequence and requests of the last
        one, or None; and the log position up to which the first of the others waits for a destination, or 0.
        """
        cdef Messages messages
        cdef uint32_t taken = 0
        cdef uint32_t at
        cdef uint64_t awaited = 0
        messages.publisher_id = publisher_id
        messages.derived_id = 0
        messages.carriers = NEVER
        messages.known_only = 0
        while (
            taken < self.count
            and self.entries[taken].ring_position <= ring_position
            and self.entries[taken].log_position
            and self.entries[taken].log_position <= durable
        ):
            messages.before = self.entries[taken].log_position
            if destinations.find(&messages).kind != WAIT_NONE:
                awaited = messages.before
                break
            taken += 1
        if taken == 0:
            return None, awaited
        found = self.entries[taken - 1].sequence, self.entries[taken - 1].requests
        self.count -= taken
        for at in range(self.count):
            self.entries[at] = self.entries[at + taken]
        return found, awaited

    def clear(self):
        """Drop all checkpoints."""
        self.count = 0
