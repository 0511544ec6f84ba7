"""Models of the queues, each with one broken rule, which random comparison with the true model must find.

They test the test: each is a mistake that an engine could make, some of them only visible at a limit. `FOCUS` has
settings with which those that show seldom do so soon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.support.queue_model import ACTIVE, Message, Queue, QueueModel, State, Subscription
from tests.support.queue_subject import (
    SECOND_NS,
    Action,
    BarrierSent,
    Bookmark,
    Counts,
    Delivered,
    Filter,
    Outcome,
    QueueSettings,
    TransactionPublish,
)


class IgnoresMaxCancels(QueueModel):
    def _limits_reached(
        self, now_ns: int, settings: QueueSettings, message: Message, is_cancelled: bool
    ) -> tuple[str, ...]:
        return super()._limits_reached(now_ns, settings, message, is_cancelled=False)


class AllowsOneDeliveryMore(QueueModel):
    def _limits_reached(
        self, now_ns: int, settings: QueueSettings, message: Message, is_cancelled: bool
    ) -> tuple[str, ...]:
        more = replace(settings, max_deliveries=settings.max_deliveries and settings.max_deliveries + 1)
        return super()._limits_reached(now_ns, more, message, is_cancelled)


class NamesOneReasonOnly(QueueModel):
    def _limits_reached(
        self, now_ns: int, settings: QueueSettings, message: Message, is_cancelled: bool
    ) -> tuple[str, ...]:
        return super()._limits_reached(now_ns, settings, message, is_cancelled)[:1]


class ReturnsMessagesToTheEnd(QueueModel):
    def _return(self, now_ns: int, queue: Queue, message: Message, is_cancelled: bool) -> bool:
        if super()._return(now_ns, queue, message, is_cancelled):
            return True
        queue.messages.remove(message)
        queue.messages.append(message)
        return False


class ReturnsWithoutFreeingTheBacklog(QueueModel):
    def _return(self, now_ns: int, queue: Queue, message: Message, is_cancelled: bool) -> bool:
        if message.holder is not None and not is_cancelled:
            message.holder.outstanding += 1
        return super()._return(now_ns, queue, message, is_cancelled)


class DeliversToTwo(QueueModel):
    def _send(self, now_ns: int, queue: Queue, message: Message, receiver: Subscription) -> None:
        super()._send(now_ns, queue, message, receiver)
        others = [one for one in self._subscriptions.values() if one.takes(queue.index, message.kind)]
        if len(others) == 3:
            last = others[-1].number
            self._events.append(Delivered(last, queue.index, message.position, message.deadline_ns))


class LetsAnybodyTouchLeases(QueueModel):
    def _may_touch(self, settings: QueueSettings, holder: Subscription, client: int) -> bool:
        return True


class KeepsSubletLeasesToTheHolder(QueueModel):
    def _may_touch(self, settings: QueueSettings, holder: Subscription, client: int) -> bool:
        return holder.client == client


class DefersWhatIsGone(QueueModel):
    def _defer(
        self, now_ns: int, queue: Queue, bookmark: Bookmark, message: Message | None, action: Action
    ) -> None:
        self._seen.discard(bookmark)
        super()._defer(now_ns, queue, bookmark, message, action)


class DefersCancels(QueueModel):
    def _defer(
        self, now_ns: int, queue: Queue, bookmark: Bookmark, message: Message | None, action: Action
    ) -> None:
        super()._defer(now_ns, queue, bookmark, message, "acknowledge")


class DropsAcknowledgementsOfInactiveMessages(QueueModel):
    def _defer(
        self, now_ns: int, queue: Queue, bookmark: Bookmark, message: Message | None, action: Action
    ) -> None:
        if message is None:
            super()._defer(now_ns, queue, bookmark, message, action)


class ForgetsTheRoundRobin(QueueModel):
    def _pick(self, queue: Queue, candidates: Sequence[Subscription]) -> Subscription:
        queue.last_receiver = -1
        return super()._pick(queue, candidates)


class ComparesCountsInsteadOfRatios(QueueModel):
    def _pick(self, queue: Queue, candidates: Sequence[Subscription]) -> Subscription:
        if queue.settings.fairness == "proportional":
            return min(candidates, key=lambda one: one.outstanding)
        return super()._pick(queue, candidates)


class PicksByNumber(QueueModel):
    def _pick(self, queue: Queue, candidates: Sequence[Subscription]) -> Subscription:
        return super()._pick(queue, sorted(candidates, key=lambda one: one.number))


class MovesReplacedSubscriptions(QueueModel):
    def replace(self, now_ns: int, subscription: int, queues: Mapping[int, Filter], max_backlog: int) -> int:
        self._subscriptions[subscription] = self._subscriptions.pop(subscription)
        return super().replace(now_ns, subscription, queues, max_backlog)


class LooksAtOneQueueForTheBacklog(QueueModel):
    def _effective_backlog(self, queues: Mapping[int, Filter], max_backlog: int) -> int:
        return super()._effective_backlog(dict(list(queues.items())[:1]), max_backlog)


class SendsBarriersWhileMessagesAreLeased(QueueModel):
    def _send_barrier(self, queue: Queue, barrier: Message, on_queue: Sequence[Subscription]) -> bool:
        held = [one for one in queue.messages if one.state is State.LEASED]
        queue.messages = [one for one in queue.messages if one not in held] + held
        sent = super()._send_barrier(queue, barrier, on_queue)
        queue.messages.sort(key=lambda one: one.position)
        return sent


class SendsBarriersWhileDeliveredMessagesCount(QueueModel):
    def _send_barrier(self, queue: Queue, barrier: Message, on_queue: Sequence[Subscription]) -> bool:
        held = [one for one in queue.messages if one.state is State.DELIVERED]
        queue.messages = [one for one in queue.messages if one not in held] + held
        sent = super()._send_barrier(queue, barrier, on_queue)
        queue.messages.sort(key=lambda one: one.position)
        return sent


class SendsBarriersToAll(QueueModel):
    def _send_barrier(self, queue: Queue, barrier: Message, on_queue: Sequence[Subscription]) -> bool:
        sent = super()._send_barrier(queue, barrier, on_queue)
        for at, event in enumerate(self._events):
            if isinstance(event, BarrierSent) and event.position == barrier.position:
                self._events[at] = replace(event, subscriptions=frozenset(one.number for one in on_queue))
        return sent


class TakesNoPriorityForZero(QueueModel):
    def _in_order(self, queue: Queue) -> list[Message]:
        if not queue.settings.has_priority:
            return queue.messages
        return sorted(queue.messages, key=lambda one: -(one.entry.priority or 0))


class HasPrioritiesOf63Bits(QueueModel):
    def _in_order(self, queue: Queue) -> list[Message]:
        def rank(message: Message) -> int:
            priority = message.entry.priority
            return 1 if priority is None else -(priority if priority < 2**63 else priority - 2**64)

        return sorted(queue.messages, key=rank) if queue.settings.has_priority else queue.messages


class ExpiresLeasedMessages(QueueModel):
    def _pass_time(self, now_ns: int) -> None:
        super()._pass_time(now_ns)
        for queue in self._queues:
            for message in list(queue.messages):
                if message.state is State.LEASED and message.is_due(now_ns):
                    self._remove(queue, message, ("time_limit",))


class EndsLeasesANanosecondLate(QueueModel):
    def _pass_time(self, now_ns: int) -> None:
        super()._pass_time(now_ns - 1)


class LetsNothingExpireLate(QueueModel):
    """With `latest` and no expiration of the queue, the message's own expiration is used."""

    def _expiry_ns(self, settings: QueueSettings, now_ns: int, expiration_s: int | None) -> int | None:
        if settings.expiration_model == "latest" and settings.expiration_ns is None:
            settings = replace(settings, expiration_model="default")
        return super()._expiry_ns(settings, now_ns, expiration_s)


class TakesNeverForNotGiven(QueueModel):
    def _expiry_ns(self, settings: QueueSettings, now_ns: int, expiration_s: int | None) -> int | None:
        return super()._expiry_ns(settings, now_ns, expiration_s or None)


class ActivatesTheYoungest(QueueModel):
    def _refill(self, now_ns: int, queue: Queue) -> None:
        queue.messages.reverse()
        super()._refill(now_ns, queue)
        queue.messages.reverse()


class KeepsCountersOverARestart(QueueModel):
    def restart(self, now_ns: int) -> None:
        counters = [{one.position: one.deliveries for one in queue.messages} for queue in self._queues]
        super().restart(now_ns)
        for queue, deliveries in zip(self._queues, counters, strict=True):
            for message in queue.messages:
                message.deliveries = deliveries[message.position]


class ForgetsDeferredAcknowledgementsAtARestart(QueueModel):
    def restart(self, now_ns: int) -> None:
        for queue in self._queues:
            queue.deferred.clear()
        super().restart(now_ns)


class ExtendsLeasesOfOthers(QueueModel):
    def extend(
        self, now_ns: int, client: int, queue: int, bookmarks: Sequence[Bookmark], extension_ns: int
    ) -> None:
        for holder in {one.client for one in self._subscriptions.values()}:
            super().extend(now_ns, holder, queue, bookmarks, extension_ns)


class CountsDeferredAcknowledgements(QueueModel):
    def acknowledge(
        self,
        now_ns: int,
        client: int,
        queue: int,
        bookmarks: Sequence[Bookmark],
        action: Action,
        delay_ns: int = 0,
    ) -> Counts:
        before = self.deferred(queue)
        counts = super().acknowledge(now_ns, client, queue, bookmarks, action, delay_ns)
        return replace(counts, matches=counts.matches + (self.deferred(queue) > before))


class KeepsLeasesOfEndedSubscriptions(QueueModel):
    """The wrongly kept leases are those on queues that the subscription has left by a replace."""

    def _end(self, now_ns: int, ended: Sequence[Subscription]) -> None:
        for queue in self._queues:
            for message in queue.messages:
                holder = message.holder
                if holder is not None and holder in ended and queue.index not in holder.queues:
                    message.holder = replace(holder)
        super()._end(now_ns, ended)


class EndsDelaysTooEarly(QueueModel):
    def _has_come(self, now_ns: int, queue: Queue, message: Message) -> bool:
        return now_ns + 1 >= message.deliver_at_ns


class EndsDelaysTooLate(QueueModel):
    def _has_come(self, now_ns: int, queue: Queue, message: Message) -> bool:
        return now_ns > message.deliver_at_ns


class HoldsDelayedMessagesBeyondTheTarget(QueueModel):
    def _has_come(self, now_ns: int, queue: Queue, message: Message) -> bool:
        target = queue.settings.target_depth
        return super()._has_come(now_ns, queue, message) and (target is None or queue.depth < target)


class NeverExpiresDelayedMessages(QueueModel):
    def _expires_delayed(self, message: Message) -> bool:
        return False


class ForgetsDelaysAtARestart(QueueModel):
    def restart(self, now_ns: int) -> None:
        for queue in self._queues:
            for message in queue.messages:
                message.deliver_at_ns = 0
        super().restart(now_ns)


class DelaysEachCancelAlike(QueueModel):
    def _cancel_delay_ns(self, settings: QueueSettings, message: Message, requested_ns: int) -> int:
        return super()._cancel_delay_ns(replace(settings, cancel_delay_factor=1.0), message, requested_ns)


class DelaysCancelsWithoutLimit(QueueModel):
    def _cancel_delay_ns(self, settings: QueueSettings, message: Message, requested_ns: int) -> int:
        return super()._cancel_delay_ns(replace(settings, cancel_delay_max_ns=2**62), message, requested_ns)


class IgnoresTheRequestedDelay(QueueModel):
    def _cancel_delay_ns(self, settings: QueueSettings, message: Message, requested_ns: int) -> int:
        return super()._cancel_delay_ns(settings, message, 0)


class ReturnsDelayedMessagesAtACancel(QueueModel):
    def _has_effect(self, queue: Queue, message: Message, client: int, action: Action) -> bool:
        return super()._has_effect(queue, message, client, action) or (
            message.state is State.DELAYED and action == "cancel"
        )


class DeliversKeysInParallel(QueueModel):
    def _waits(self, queue: Queue, message: Message) -> bool:
        return False


class LetsMessagesPassHeldHeads(QueueModel):
    def _waits(self, queue: Queue, message: Message) -> bool:
        earlier = [one for one in queue.messages if one.position < message.position]
        return super()._waits(queue, message) and any(
            one.state is State.AVAILABLE and self._key(queue, one) == self._key(queue, message)
            for one in earlier
        )


class DeliversAnyMessageOfAFreeKey(QueueModel):
    """One at a time, but not the oldest: visible with priorities and filters."""

    def _waits(self, queue: Queue, message: Message) -> bool:
        return super()._waits(queue, message) and any(
            one.state is State.LEASED and self._key(queue, one) == self._key(queue, message)
            for one in queue.messages
        )


class LetsMessagesPassReturnedHeads(QueueModel):
    def _waits(self, queue: Queue, message: Message) -> bool:
        returned = [one for one in queue.messages if one.state is State.AVAILABLE and one.deliveries]
        queue.messages = [one for one in queue.messages if one not in returned]
        waits = super()._waits(queue, message)
        queue.messages = sorted([*queue.messages, *returned], key=lambda one: one.position)
        return waits


class GivesBarriersKeys(QueueModel):
    def _key(self, queue: Queue, message: Message) -> int:
        return message.entry.key if queue.settings.has_ordering_key else 0


class MakesOneKeyOfNoKey(QueueModel):
    def _key(self, queue: Queue, message: Message) -> int:
        key = super()._key(queue, message)
        is_barrier = queue.settings.has_barriers and message.entry.is_barrier
        return key or (queue.settings.has_ordering_key and not is_barrier)


class KeepsWaitingMessagesForever(QueueModel):
    def _remove(self, queue: Queue, message: Message, reasons: tuple[str, ...]) -> None:
        if reasons != ("time_limit",) or not self._waits(queue, message):
            super()._remove(queue, message, reasons)


class FreesKeysOfDelayedHeads(QueueModel):
    def _is_held(self, message: Message) -> bool:
        return message.state is State.LEASED


class LetsDelayedMessagesJoinBehind(QueueModel):
    """Behind the other messages of the key, not at their places in the log."""

    def _waits(self, queue: Queue, message: Message) -> bool:
        delayed = message.deliver_at_ns and not message.returned_late
        key = self._key(queue, message)
        others = [one for one in queue.messages if one is not message and self._key(queue, one) == key]
        return super()._waits(queue, message) or bool(
            key
            and delayed
            and message.state is State.AVAILABLE
            and any(one.state in ACTIVE for one in others)
        )


class BrokenTransactions(QueueModel):
    """The base of those whose mistakes only transactions show (queue_guarantees.md §4)."""


class HasNoFence(BrokenTransactions):
    def _holds(self, queue: Queue, client: int, bookmarks: Sequence[Bookmark]) -> bool:
        return True


class LetsAnyHolderPassTheFence(BrokenTransactions):
    def _holds(self, queue: Queue, client: int, bookmarks: Sequence[Bookmark]) -> bool:
        found = [queue.find(bookmark) for bookmark in bookmarks]
        return all(message is not None and message.state is State.LEASED for message in found)


class ChecksOneMessageOnly(BrokenTransactions):
    def _holds(self, queue: Queue, client: int, bookmarks: Sequence[Bookmark]) -> bool:
        return super()._holds(queue, client, bookmarks[:1])


class AcknowledgesWithoutPublishing(BrokenTransactions):
    def _take_effect(
        self,
        now_ns: int,
        queue: Queue,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> None:
        super()._take_effect(now_ns, queue, first, bookmarks, [replace(one, entries={}) for one in publishes])


class PublishesWithoutAcknowledging(BrokenTransactions):
    def _take_effect(
        self,
        now_ns: int,
        queue: Queue,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> None:
        super()._take_effect(now_ns, queue, first, [], publishes)


class AcknowledgesOneMessageOnly(BrokenTransactions):
    def _take_effect(
        self,
        now_ns: int,
        queue: Queue,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> None:
        super()._take_effect(now_ns, queue, first, bookmarks[:1], publishes)


class ExecutesRepetitions(BrokenTransactions):
    def transact(
        self,
        now_ns: int,
        client: int,
        queue: int,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> Outcome:
        is_repeated = self._is_repeated(first)
        outcome = super().transact(now_ns, client, queue, first, bookmarks, publishes)
        if is_repeated and outcome == "done":
            self._take_effect(now_ns, self._queues[queue], first, bookmarks, publishes)
            self._settle(now_ns)
        return outcome


class DecidesRepetitionsAnew(BrokenTransactions):
    def _is_repeated(self, first: Bookmark) -> bool:
        return False


class RefusesWithoutARecord(BrokenTransactions):
    def _refuse(self, first: Bookmark, publishes: int) -> None:
        pass


class TakesOneSequenceForARefusal(BrokenTransactions):
    def _refuse(self, first: Bookmark, publishes: int) -> None:
        super()._refuse(first, 0)


class ForgetsRefusalsAtARestart(BrokenTransactions):
    def restart(self, now_ns: int) -> None:
        self._refused.clear()
        super().restart(now_ns)


class ForgetsRefusalsAfterLaterTransactions(BrokenTransactions):
    def _take_effect(
        self,
        now_ns: int,
        queue: Queue,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> None:
        self._refused = {one for one in self._refused if one[0] != first[0]}
        super()._take_effect(now_ns, queue, first, bookmarks, publishes)


BROKEN_MODELS: list[type[QueueModel]] = sorted(
    {*QueueModel.__subclasses__()} - {BrokenTransactions}, key=lambda model: model.__name__
)
BROKEN_TRANSACTION_MODELS: list[type[QueueModel]] = sorted(
    BrokenTransactions.__subclasses__(), key=lambda model: model.__name__
)

_ORDINARY = {"has_priority": False, "has_barriers": False, "target_depth": None, "has_ordering_key": False}
_ROOM = {"max_backlog": None, "max_per_subscription": 10}
_LASTING = {"at_least_once": True, "lease_ns": None, "expiration_ns": None}
_CANCELS = {
    **_ORDINARY,
    **_ROOM,
    **_LASTING,
    "max_cancels": 0,
    "max_deliveries": 0,
    "cancel_delay_ns": SECOND_NS // 2,
    "cancel_delay_factor": 2.0,
    "cancel_delay_max_ns": SECOND_NS,
}
_BARRIERS = {
    **_ORDINARY,
    **_ROOM,
    "has_barriers": True,
    "max_cancels": 0,
    "max_deliveries": 0,
    "expiration_ns": None,
}
_KEYS = {**_ORDINARY, **_ROOM, "at_least_once": True, "has_ordering_key": True}

FOCUS: Mapping[type[QueueModel], Mapping[str, Any]] = {
    KeepsLeasesOfEndedSubscriptions: {**_ORDINARY, **_ROOM, **_LASTING},
    SendsBarriersWhileDeliveredMessagesCount: {
        **_BARRIERS,
        "at_least_once": False,
        "fairness": "round-robin",
        "cancel_delay_ns": 0,
    },
    SendsBarriersWhileMessagesAreLeased: {**_BARRIERS, **_LASTING},
    SendsBarriersToAll: _BARRIERS,
    KeepsWaitingMessagesForever: {
        **_KEYS,
        "lease_ns": None,
        "expiration_ns": SECOND_NS,
        "expiration_model": "queue",
    },
    LetsDelayedMessagesJoinBehind: {
        **_KEYS,
        **_LASTING,
        "cancel_delay_ns": SECOND_NS // 2,
        "max_cancels": 0,
        "max_deliveries": 0,
    },
    LetsMessagesPassReturnedHeads: {**_KEYS, "cancel_delay_ns": 0},
    FreesKeysOfDelayedHeads: {**_CANCELS, "has_ordering_key": True},
    DelaysEachCancelAlike: {**_CANCELS, "cancel_delay_max_ns": 3_600 * SECOND_NS},
    DelaysCancelsWithoutLimit: {**_CANCELS, "cancel_delay_ns": 2 * SECOND_NS},
    ReturnsDelayedMessagesAtACancel: _CANCELS,
    IgnoresTheRequestedDelay: _CANCELS,
    ComparesCountsInsteadOfRatios: {
        **_ORDINARY,
        **_ROOM,
        "at_least_once": True,
        "fairness": "proportional",
        "lease_ns": None,
    },
    NamesOneReasonOnly: {
        **_ORDINARY,
        "at_least_once": True,
        "max_deliveries": 1,
        "max_cancels": 1,
        "cancel_delay_ns": 0,
    },
    DropsAcknowledgementsOfInactiveMessages: {
        **_ORDINARY,
        "at_least_once": True,
        "target_depth": 1,
        "deferred_ack_expiration_ns": 86_400 * SECOND_NS,
    },
    ExpiresLeasedMessages: {
        **_ORDINARY,
        **_ROOM,
        **_LASTING,
        "max_deliveries": 0,
        "expiration_ns": SECOND_NS,
        "expiration_model": "queue",
    },
    TakesNeverForNotGiven: {
        "at_least_once": True,
        **_ORDINARY,
        "expiration_ns": SECOND_NS,
        "expiration_model": "default",
    },
}
"""Fields of the settings of all queues, for models whose mistake random settings seldom show."""
