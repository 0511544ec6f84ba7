# All queues of an instance: subscriptions, acknowledgements, and the turn in which all decisions are made.
#
# A subscription has one backlog over all its queues. A replacement changes its queues, filter and limit; it keeps the
# messages that it holds (queues.md §5.5). At its end, or that of its connection or transport, all messages that it
# holds come back.
#
# A turn begins with `pass_time`, for the queues whose timer is due. Then follow the commands of clients, and then
# `serve`, for the queues that have changed, in the order of the configuration. The decisions are in `output`.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queues.engine cimport (
    NEVER,
    NO_PUBLISHER,
    OUTCOME_DEFERRED,
    OUTCOME_EXPIRED,
    OUTCOME_NOT_FOUND,
    OUTCOME_REMOVED,
    OUTCOME_RETURNED,
    HeapEntry,
    NewMessage,
    Ownership,
    Ownerships,
    QueueArena,
    QueueSpan,
    heap_pop,
)
from amps._core.queues.slots cimport (
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_BARRIER,
    SLOT_ELSEWHERE,
    SLOT_GONE,
    SLOT_WAITING,
    QueueCounters,
)
from amps._core.journal.queue_records cimport (
    QUEUE_EXPIRE,
    REASON_FORCED_EXPIRE,
    QueueMatch,
    QueueMatchesHeader,
)

TIME_NEVER = NEVER


cdef class QueueManager:

    def __init__(self, QueueArena arena not None, counters, settings, uint32_t transports, str instance=""):
        """settings: see the stub; in the order of the configuration. counters: writable, QueueCounters for each.
        instance: the name of this instance.
        """
        cdef uint32_t number
        rows = memoryview(counters)
        self.arena = arena
        self.output = QueueOutput(transports)
        self.shared = QueueShared(self.output, Ownerships(instance))
        self.requests = []
        for number, of_queue in enumerate(settings):
            row = rows[number * sizeof(QueueCounters) : (number + 1) * sizeof(QueueCounters)]
            self.shared.queues.append(Queue(arena, number, row, of_queue, self.shared))
        self.subscribers = {}
        self.by_client = {}
        self.cursors = {}
        self.next_order = 1
        self.next_cursor = 1
        self.was_frozen = False
        self.cursor_news = []

    @property
    def queues(self):
        """The queues by number."""
        return self.shared.queues

    # --- subscriptions --------------------------------------------------------------------------------

    def subscribe(
        self, uint32_t transport, uint32_t number, uint64_t client, wanted, uint64_t max_backlog, shown=None
    ):
        """Add a subscription, or replace the one with that number. Returns its effective backlog.

        wanted: {number of a queue: key of the filter, None = no filter}. Subscriptions with the same key on the same
        queue and transport share the evaluation of their filter. shown: subscription id, topic and filter as texts, for
        status reports.
        """
        cdef Subscriber subscriber = self.subscribers.get((transport, number))
        cdef Membership member
        cdef Queue queue
        cdef uint64_t limit = max_backlog
        cdef dict held
        if subscriber is None:
            subscriber = Subscriber(transport, number, client, self.next_order)
            self.next_order += 1
            self.subscribers[transport, number] = subscriber
            self.by_client.setdefault(client, {})[transport, number] = None
        else:
            self._leave_queues(subscriber)
        for queue_number in wanted:
            limit = min(limit, (<Queue>self.shared.queues[queue_number]).member_limit)
        subscriber.limit = limit
        subscriber.shown = shown or ("", "", "")
        held = {member.queue: member for member in subscriber.alive}
        for queue_number, key in wanted.items():
            queue = self.shared.queues[queue_number]
            cursor = self._cursor(queue, transport, key)
            member = held.get(queue_number)
            if member is None:
                member = Membership(self._membership_number(), subscriber, queue_number, cursor)
                self.shared.memberships[member.number] = member
            member.cursor = cursor
            subscriber.memberships.append(member)
            queue.add_member(member)
        return limit

    def _membership_number(self):
        if self.shared.free_memberships:
            return self.shared.free_memberships.pop()
        self.shared.memberships.append(None)
        return len(self.shared.memberships) - 1

    def _cursor(self, Queue queue, uint32_t transport, key):
        cdef Cursor cursor
        if key is None:
            return queue.everything
        for cursor in queue.cursors:
            if cursor.key == (transport, key):
                return cursor
        cursor = Cursor(self.arena, (transport, key), self.next_cursor)
        self.next_cursor += 1
        queue.cursors.append(cursor)
        self.cursors[cursor.number] = (queue, cursor)
        self.cursor_news.append((transport, cursor.number, queue.number, key))
        return cursor

    def _leave_queues(self, Subscriber subscriber):
        cdef Membership member
        cdef Queue queue
        memberships = subscriber.memberships
        subscriber.memberships = []
        for member in memberships:
            queue = self.shared.queues[member.queue]
            queue.drop_member(member)
            if member.cursor.members == 0:
                if self.cursors.pop(member.cursor.number, None) is not None:
                    self.cursor_news.append((subscriber.transport, member.cursor.number, None, None))

    def unsubscribe(self, uint32_t transport, uint32_t number, uint64_t now_ns):
        """End a subscription; the messages that it holds come back. False: there is none with that number."""
        cdef Subscriber subscriber = self.subscribers.pop((transport, number), None)
        cdef Membership member
        if subscriber is None:
            return False
        of_client = self.by_client[subscriber.client]
        del of_client[transport, number]
        if not of_client:
            del self.by_client[subscriber.client]
        self._leave_queues(subscriber)
        for member in list(subscriber.alive):
            (<Queue>self.shared.queues[member.queue]).return_all(member, now_ns)
        return True

    def end_client(self, uint64_t client, uint64_t now_ns):
        """End all subscriptions of a connection that has ended."""
        self.shared.forget_deferring(client)
        for key in list(self.by_client.get(client, ())):
            self.unsubscribe(key[0], key[1], now_ns)

    def end_transport(self, uint32_t transport, uint64_t now_ns):
        """End all subscriptions of a transport that has died."""
        for client in [client for client in self.shared.deferred_by_client if client >> TRANSPORT_SHIFT == transport]:
            self.shared.forget_deferring(client)
        for key in [key for key in self.subscribers if key[0] == transport]:
            self.unsubscribe(key[0], key[1], now_ns)

    # --- filters --------------------------------------------------------------------------------------

    @property
    def filters(self):
        """{cursor number: (queue number, transport, key, log position up to which it is evaluated)}."""
        return {
            number: (queue.number, cursor.key[0], cursor.key[1], cursor.evaluated_until)
            for number, (queue, cursor) in self.cursors.items()
        }

    def take_cursor_news(self):
        """[(transport, cursor number, queue number, key)]: the changes since the last call, in their order. The
        transport evaluates the filter from now on; queue number None: it no longer does.
        """
        news = self.cursor_news
        self.cursor_news = []
        return news

    cdef int hear_section(self, const QueueMatchesHeader* section, uint64_t now_ns) except -1:
        """Do the same as `hear`, for a section of a record; its matches follow the section."""
        cdef const QueueMatch* matches = <const QueueMatch*>(section + 1)
        cdef Queue queue
        cdef Cursor cursor
        cdef uint32_t at
        found = self.cursors.get(section.cursor)
        if found is None:
            return 0
        queue, cursor = found
        for at in range(section.count):
            queue.hear_match(cursor, matches[at].position, matches[at].slot)
        queue.heard(cursor, section.evaluated_until, now_ns)
        return 0

    def hear(self, uint32_t cursor_number, matching, uint64_t evaluated_until, uint64_t now_ns):
        """Take a transport's matches of a filter, [(log position, slot)], and the log position that it has reached."""
        cdef Queue queue
        cdef Cursor cursor
        found = self.cursors.get(cursor_number)
        if found is None:
            return
        queue, cursor = found
        for position, slot in matching:
            queue.hear_match(cursor, position, slot)
        queue.heard(cursor, evaluated_until, now_ns)

    # --- acknowledgements -----------------------------------------------------------------------------

    def limit_deferred(self, uint64_t of_all, uint64_t per_client):
        """Limit the number of deferred acknowledgements, for all clients together and per client."""
        self.shared.deferred_max = of_all
        self.shared.deferred_per_client_max = per_client

    cdef bint may_defer(
        self, Queue queue, uint64_t client, const QueueAcknowledgementHeader* header, const QueueEntry* entries,
        object last_sequence
    ) except -1:
        """Whether the limits allow the entries of an acknowledgement that will be deferred."""
        cdef uint32_t at
        cdef set found = None
        if not queue.defers(header.action):
            return True
        for at in range(header.count):
            if entries[at].position or entries[at].sequence <= <uint64_t>last_sequence(entries[at].publisher_id):
                continue
            bookmark = (entries[at].publisher_id, entries[at].sequence)
            if bookmark not in queue.deferred:
                if found is None:
                    found = set()
                found.add(bookmark)
        return found is None or self.shared.may_defer(client, <uint64_t>len(found))

    cdef int acknowledge_entries(
        self, Queue queue, uint64_t client, const QueueAcknowledgementHeader* header, QueueEntry* entries,
        object last_sequence, uint64_t now_ns, AcknowledgedCounts* counts
    ) except -1:
        """Apply an acknowledgement of several messages; the entries that the journal must record move to the front.

        last_sequence(publisher id): the highest sequence in the log; called for entries without a position.
        """
        cdef QueueEntry* entry
        cdef uint32_t at
        cdef uint32_t slot
        cdef uint32_t publisher
        cdef uint32_t deliveries
        cdef int outcome
        counts.matches = 0
        counts.removed = 0
        counts.kept = 0
        for at in range(header.count):
            entry = &entries[at]
            if entry.position:
                slot = queue.find(entry.position, entry.slot)
            else:
                # The message may have entered after the transport searched for it.
                publisher = self.shared.known_publisher(entry.publisher_id)
                slot = NO_SLOT
                if publisher != NO_PUBLISHER:
                    slot = queue.find_since(publisher, entry.sequence, header.searched_until)
            if slot != NO_SLOT:
                entry.position = queue.slots[slot].position
                deliveries = queue.slots[slot].deliveries
                outcome = queue.acknowledge_slot(client, slot, header.action, header.extension_ns, now_ns)
            else:
                deliveries = 0
                outcome = OUTCOME_NOT_FOUND
                if (
                    entry.position == 0 and queue.defers(header.action)
                    and entry.sequence > <uint64_t>last_sequence(entry.publisher_id)
                ):
                    queue.defer(entry.publisher_id, entry.sequence, now_ns, client)
                    outcome = OUTCOME_DEFERRED
            if outcome >= OUTCOME_RETURNED and outcome != OUTCOME_DEFERRED:
                counts.matches += 1
            if outcome == OUTCOME_REMOVED or outcome == OUTCOME_EXPIRED:
                counts.removed += 1
            if outcome == OUTCOME_REMOVED or outcome == OUTCOME_DEFERRED:
                entry.slot = deliveries
                entry.reasons = REASON_FORCED_EXPIRE if header.action == QUEUE_EXPIRE else 0
                entries[counts.kept] = entry[0]
                counts.kept += 1
        return 0

    def acknowledge(
        self, uint32_t queue_number, uint64_t client, bookmarks, uint32_t action, uint64_t extension_ns,
        uint64_t now_ns, uint64_t last_sequence=0
    ):
        """Apply an acknowledgement, from Python. bookmarks: (publisher id, sequence, log position or 0, slot) of each
        message. last_sequence: the same for all publishers. Returns matches, removed, and the entries that the journal
        must record: [(publisher id, sequence, log position)].
        """
        cdef QueueAcknowledgementHeader header
        cdef AcknowledgedCounts counts
        cdef uint32_t at
        cdef bytearray memory = bytearray(len(bookmarks) * sizeof(QueueEntry) + 8)
        cdef QueueEntry* entries = <QueueEntry*><char*>memory
        for at in range(<uint32_t>len(bookmarks)):
            entries[at].publisher_id, entries[at].sequence, entries[at].position, entries[at].slot = bookmarks[at]
        header.action = action
        header.count = <uint32_t>len(bookmarks)
        header.extension_ns = extension_ns
        header.searched_until = 0
        self.acknowledge_entries(
            self.shared.queues[queue_number], client, &header, entries, lambda _: last_sequence, now_ns, &counts
        )
        kept = [(entries[at].publisher_id, entries[at].sequence, entries[at].position) for at in range(counts.kept)]
        return counts.matches, counts.removed, kept

    # --- messages, from Python ------------------------------------------------------------------------

    def enqueue(
        self, uint32_t queue_number, uint64_t position, bookmark, uint64_t timestamp_ns, expiration_s, uint64_t now_ns,
        priority=None, is_barrier=False, uint64_t deliver_at_ns=0, uint32_t key_hash=0, str origin=None
    ):
        """Let a message enter a queue. expiration_s: None if it has none. deliver_at_ns: 0 = it is not delayed. origin:
        the instance to which it was published; None = this one.
        """
        cdef NewMessage message
        message.position = position
        message.publisher_id, message.sequence = bookmark
        message.publisher = self.shared.publisher(message.publisher_id)
        message.timestamp_ns = timestamp_ns
        message.expiry_ns = 0
        if expiration_s is not None:
            message.expiry_ns = timestamp_ns + <uint64_t>expiration_s * 1_000_000_000 if expiration_s else NEVER
        message.has_priority = priority is not None
        message.priority = priority or 0
        message.is_barrier = is_barrier
        message.deliver_at_ns = deliver_at_ns
        message.key_hash = key_hash
        message.origin = 0 if origin is None else self.shared.ownerships.owner(origin)
        (<Queue>self.shared.queues[queue_number]).enqueue(&message, now_ns)

    def delay_recorded(self, uint32_t queue_number, uint64_t position, uint64_t until_ns):
        """Delay a message until a time that is recorded in the journal."""
        (<Queue>self.shared.queues[queue_number]).delay_recorded(position, until_ns)

    def remove_recorded(self, uint32_t queue_number, uint64_t position):
        """Remove a message whose removal is recorded in the journal. False: it was not in the queue."""
        return (<Queue>self.shared.queues[queue_number]).remove_recorded(position, NO_SLOT) == 1

    def available(self, uint32_t queue_number):
        """Log positions of the messages that a query returns: active and not leased, in log order (queues.md §14.1)."""
        cdef Queue queue = self.shared.queues[queue_number]
        cdef uint32_t slot = queue.head
        found = []
        while slot != NO_SLOT:
            if queue.slots[slot].state in (SLOT_AVAILABLE, SLOT_BARRIER, SLOT_ELSEWHERE, SLOT_WAITING):
                found.append(queue.slots[slot].position)
            slot = queue.arena.next_slot(slot)
        return found

    def states(self, uint32_t queue_number):
        """[(log position, SlotState)] of all messages, in the order of the log."""
        cdef Queue queue = self.shared.queues[queue_number]
        cdef uint32_t slot = queue.head
        found = []
        while slot != NO_SLOT:
            if queue.slots[slot].state != SLOT_GONE:
                found.append((queue.slots[slot].position, queue.slots[slot].state))
            slot = queue.arena.next_slot(slot)
        return found

    def subscriber(self, uint32_t transport, uint32_t number):
        """The subscription with that number, or None."""
        return self.subscribers.get((transport, number))

    @property
    def undelivered_from(self):
        """Log position before which no queue holds an undelivered message; None: no queue holds any."""
        cdef Queue queue
        cdef uint64_t lowest = NEVER
        for queue in self.shared.queues:
            lowest = min(lowest, queue.undelivered_from())
        return None if lowest == NEVER else lowest

    # --- the turn -------------------------------------------------------------------------------------

    @property
    def due_ns(self):
        """The time at which `pass_time` must be called next, if nothing else happens; TIME_NEVER: never."""
        return self.shared.timers.entries[0].rank if self.shared.timers.count else NEVER

    def pass_time(self, uint64_t now_ns):
        """End leases and expire messages that are due. Call it before any other method with the same time."""
        cdef Queue queue
        cdef HeapEntry entry
        while self.shared.timers.count and self.shared.timers.entries[0].rank <= now_ns:
            entry = self.shared.timers.entries[0]
            heap_pop(&self.shared.timers)
            queue = self.shared.queues[entry.slot]
            if queue.expected_ns == entry.rank:
                queue.expected_ns = NEVER
                queue.pass_time(now_ns)
                # What is due still has to wait for the next turn.
                self.shared.expects(queue, max(queue.due_ns(), now_ns + 1))

    def serve(self, uint64_t now_ns):
        """Deliver the messages that can be delivered, in all queues that have changed."""
        cdef Queue queue
        if self.was_frozen and not self.output.frozen:
            # Deliveries that the frozen journal could not record were held back, and no other event may mark these
            # queues.
            for queue in self.shared.queues:
                if queue.span is not None:
                    queue.span.prompt()
                queue.mark_dirty()
        self.was_frozen = self.output.frozen
        while self.shared.dirty or self.requests:
            dirty = self.shared.dirty
            self.shared.dirty = []
            if len(dirty) > 1:
                dirty.sort(key=number_of)
            for queue in dirty:
                queue.serve(now_ns)
            if self.requests and not self.shared.dirty:
                self._grant(now_ns)

    def _grant(self, uint64_t now_ns):
        """Answer the requests of other instances, when everything that can be delivered here has been. A request that
        is not granted is forgotten.
        """
        cdef QueueSpan span
        cdef bytes bookmarks
        requests = self.requests
        self.requests = []
        if self.output.frozen:
            return
        for number, requester, bookmarks, wanted in requests:
            span = (<Queue>self.shared.queues[number]).span
            span.queue.now_ns = now_ns
            span.grant(
                self.shared.ownerships.owner(requester), <const uint64_t*><const char*>bookmarks,
                <uint64_t>(len(bookmarks) // 16), wanted,
            )

    # --- other instances ------------------------------------------------------------------------------

    def request(self, uint64_t queue_number, str requester not None, bytes bookmarks not None, uint64_t wanted):
        """Another instance requests messages of a queue: `wanted` of those with the bookmarks, each a publisher id and
        a sequence of 8 bytes. It is answered by the next `serve`. False: there is no such queue, or it is malformed.
        """
        if (
            queue_number >= <uint64_t>len(self.shared.queues)
            or (<Queue>self.shared.queues[queue_number]).span is None
            or not requester or len(bookmarks) % 16 or len(self.requests) >= REQUESTS_WAITING_MAX
        ):
            return False
        self.requests.append((queue_number, requester, bookmarks, wanted))
        return True

    def take_wishes(self):
        """[(queue number, name of the owner, bookmarks, how many are wanted)]: the requests to send."""
        wishes = self.shared.wishes
        self.shared.wishes = []
        return wishes

    def set_reachable(self, names):
        """Set the names of the instances that can be reached by replication."""
        self.shared.ownerships.set_reachable(names)
        self._look_again()

    def set_proxied(self, uint32_t queue_number, bint enabled):
        """Let this instance act for owners of a queue's messages that cannot be reached, or not (replication.md §14.4).
        False: no other instance can own messages of the queue.
        """
        cdef Queue queue = self.shared.queues[queue_number]
        if queue.span is None:
            return False
        queue.span.is_proxied = enabled
        queue.counters.proxied = enabled
        self._look_again()
        return True

    def _look_again(self):
        cdef Queue queue
        for queue in self.shared.queues:
            if queue.span is not None and queue.counters.foreign:
                queue.span.prompt()
                queue.mark_dirty()

    def owners(self, uint32_t queue_number):
        """[(log position, name of the owner, epoch, whether a proxy decided)] of all messages, in log order."""
        cdef Queue queue = self.shared.queues[queue_number]
        cdef Ownerships ownerships = self.shared.ownerships
        cdef Ownership* entry
        cdef uint32_t slot = queue.head
        found = []
        while slot != NO_SLOT:
            if queue.slots[slot].state != SLOT_GONE:
                entry = &ownerships.table[queue.slots[slot].ownership]
                found.append(
                    (queue.slots[slot].position, ownerships.names[entry.owner], entry.epoch, entry.is_proxied != 0)
                )
            slot = queue.arena.next_slot(slot)
        return found


def number_of(Queue queue):
    """The index of a queue in the configuration."""
    return queue.number
