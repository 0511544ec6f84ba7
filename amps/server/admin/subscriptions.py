"""`/amps/instance/subscriptions` (operations.md §5.7).

The transports list all subscriptions. For subscriptions to queues, only the core knows their backlog and its limit.

A subscription keeps its id when it is resumed or replaced. Metrics of features that are not implemented are empty:
`entitlement_filter`, `pagination_id`.
"""

from amps.server.admin.tree import Collection, Dynamic, Group, Leaf, Refused
from amps.server.services.core_requests import CoreRequests
from amps.server.services.requests import RequestRefused
from amps.server.services.transport_requests import TransportRequests

SUBSCRIPTION_NUMBER_BITS = 32


def subscriptions_node(transports: TransportRequests, core: CoreRequests, has_queues: bool) -> Dynamic:
    """The node of all subscriptions of the instance."""

    async def make() -> Collection:
        try:
            in_queues = {
                (transport, number): (backlog, limit)
                for transport, number, *_, backlog, limit in (
                    await core.queue_subscriptions() if has_queues else ()
                )
            }
            rows = await transports.subscriptions()
        except RequestRefused as refusal:
            raise Refused(500, str(refusal)) from None
        members = {}
        for transport, number, queue_number, client, sub_id, topic, message_type, filter_text, *rest in rows:
            bookmark, options = rest
            backlog, limit = in_queues.get((transport, queue_number), (0, None))
            if limit is not None:
                options = f"{options},max_backlog={limit}" if options else f"max_backlog={limit}"
            values = {
                "backlog": str(backlog),
                "bookmark": bookmark,
                "client_id": client,
                "entitlement_filter": "",
                "filter": filter_text,
                "message_type": message_type,
                "options": options,
                "pagination_id": "",
                "sub_id": sub_id,
                "topic": topic,
            }
            members[str((transport << SUBSCRIPTION_NUMBER_BITS) + number)] = Group(
                {name: _fixed(value) for name, value in values.items()}
            )
        return Collection("subscription", members)

    return Dynamic(make)


def _fixed(value: str) -> Leaf:
    return Leaf(lambda: value)
