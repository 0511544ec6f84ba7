"""Routing in the engine: the route or ticket of each received message and acknowledgement, or neither."""

import pytest

from amps.client import AckType, Command, SubscriptionAlreadyExistsException
from amps.client.errors import BadFilterException
from amps.client.protocol.engine_types import (
    Deliver,
    Global,
    LastChance,
    Route,
    RouteKind,
    StreamEnd,
    TicketFailed,
)
from tests.unit.client.harness import Harness, delivered


def test_client_17_one_message_for_several_subscriptions() -> None:
    """client.md §21 17, for ids of the fast path and ids beyond it"""
    h = Harness().ready()
    for sub_id in ("A", "B", 'odd"id', "ä"):
        h.subscribe(sub_id)
    h.receive({"c": "p", "t": "t", "sids": "A,B"}, body=b"1")
    h.receive({"c": "publish", "t": "t", "sub_id": "A"}, body=b"2")
    h.receive({"c": "p", "t": "t", "sids": 'odd"id,ä,A'}, body=b"3")
    h.receive({"c": "p", "t": "t", "sids": "B"}, body=b'{"sids":"A"}')
    assert delivered(h.events()) == [
        ("A", b"1"), ("B", b"1"), ("A", b"2"), ('odd"id', b"3"), ("ä", b"3"), ("A", b"3"),
        ("B", b'{"sids":"A"}'),
    ]  # fmt: skip


def test_ids_in_a_body_never_route_a_message() -> None:
    h = Harness().ready()
    h.subscribe("A")
    h.receive({"c": "p", "t": "t"}, body=b'{"sids":"A"}')
    (lost,) = h.events(Deliver, LastChance)
    assert isinstance(lost, LastChance)


def test_neighbouring_messages_are_delivered_together() -> None:
    h = Harness().ready()
    route = h.subscribe("A")
    h.receive(*[{"c": "p", "t": "t", "sids": "A"} for _ in range(5)])
    (event,) = h.events()
    assert event.route is route
    assert len(event.messages) == 5
    assert h.engine.stats.content_in == 5


def test_failure_settles_the_ticket_and_drops_the_route() -> None:
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "t", filter="/a >"), route, h.now)
    cid = ticket.command_id
    h.receive({"c": "ack", "cid": cid, "a": "processed", "status": "failure", "reason": "bad filter"})
    (failed,) = h.events()
    assert isinstance(failed.error, BadFilterException)
    assert route.closed
    h.receive({"c": "p", "t": "t", "sids": cid})
    assert isinstance(h.events()[0], LastChance)


def test_a_failed_replace_leaves_the_subscription_alone() -> None:
    h = Harness().ready()
    route = h.subscribe("A")
    ticket = h.engine.execute(
        Command("subscribe", "t", sub_id="A", options="replace", filter="/a >"), route, h.now
    )
    h.receive(
        {"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "failure", "reason": "bad filter"}
    )
    assert isinstance(h.events()[0], TicketFailed)
    h.receive({"c": "p", "t": "t", "sids": "A"}, body=b"still")
    assert delivered(h.events()) == [("A", b"still")]


def test_an_active_subscription_id_is_not_taken_twice() -> None:
    h = Harness().ready()
    h.subscribe("A")
    with pytest.raises(SubscriptionAlreadyExistsException):
        h.engine.execute(Command("subscribe", "u", sub_id="A"), Route(RouteKind.COMMAND), h.now)
    assert h.sent() == []


def test_client_16_an_abandoned_command_is_cancelled_and_its_late_ack_ignored() -> None:
    """client.md §21 16"""
    h = Harness().ready()
    subscription = h.engine.execute(Command("subscribe", "t"), Route(RouteKind.COMMAND), h.now)
    query = h.engine.execute(Command("sow", "t"), Route(RouteKind.COMMAND), h.now)
    h.sent()
    h.engine.abandon(subscription, h.now)
    h.engine.abandon(query, h.now)
    first, second = h.sent()
    assert (first["c"], first["sub_id"], first.get("query_id")) == (
        "unsubscribe",
        subscription.command_id,
        None,
    )
    assert (second["c"], second.get("sub_id"), second["query_id"]) == ("unsubscribe", None, query.command_id)
    h.engine.events()
    h.receive({"c": "ack", "cid": query.command_id, "a": "processed", "status": "success"})
    assert h.events() == []


def test_client_18_late_messages_of_ended_subscriptions() -> None:
    """client.md §21 18"""
    h = Harness().ready()
    routes = [h.subscribe(sub_id) for sub_id in "ABC"]
    h.engine.execute(Command("unsubscribe", sub_id="A"), None, h.now)
    assert h.sent()[0].header == {"c": "unsubscribe", "cid": "5", "sub_id": "A", "a": "processed"}
    assert [event.route for event in h.events(StreamEnd)] == routes[:1]
    h.receive({"c": "p", "t": "t", "sids": "A"}, body=b"late")
    assert [event.message.data for event in h.events(LastChance)] == [b"late"]
    h.engine.execute(Command("unsubscribe", sub_id="all"), None, h.now)
    assert [event.route for event in h.events(StreamEnd)] == routes[1:]


def test_client_22_conflated_acks_without_a_store() -> None:
    """client.md §21 22: a persisted ack without command id belongs to no ticket"""
    h = Harness().ready()
    h.engine.execute(Command("publish", "t", ack_type="persisted"), Route(RouteKind.COMMAND), h.now)
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 7})
    (event,) = h.events()
    assert isinstance(event, LastChance)
    h.engine.set_global("ack", True)
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 8})
    assert [type(event) for event in h.events()] == [Global, LastChance]


def test_client_22_requested_acks_reach_the_route() -> None:
    """client.md §21 22"""
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("publish", "t", ack_type="processed"), route, h.now)
    assert ticket.done
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    deliver, end = h.events()
    assert deliver.messages[0].ack_type == AckType.PROCESSED
    assert isinstance(end, StreamEnd)


def test_a_query_ends_with_its_group_and_the_requested_acks() -> None:
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("sow", "t", ack_type="stats"), route, h.now)
    (query,) = h.sent()
    assert (query["bs"], query.acks, query["query_id"]) == (10, {"processed", "stats"}, ticket.command_id)
    query_id = query["query_id"]
    h.receive(
        {"c": "ack", "cid": query_id, "a": "processed", "status": "success"},
        {"c": "group_begin", "query_id": query_id},
        {"c": "sow", "t": "t", "query_id": query_id, "bs": 2, "gseq": 1, "ts": "now"},
        body=b'{"k":"1","l":2,"x":"c="}{}{"k":"2","l":0}',
    )
    h.receive({"c": "sow", "t": "t", "query_id": query_id, "bs": 1, "k": "3", "l": 4}, body=b'{"}"')
    h.receive({"c": "group_end", "query_id": query_id})
    messages = [message for event in h.events(Deliver) for message in event.messages]
    assert [message.command for message in messages] == ["group_begin", "sow", "sow", "sow", "group_end"]
    assert [(m.sow_key, m.data, m.timestamp) for m in messages[1:4]] == [
        ("1", b"{}", "now"), ("2", b"", "now"), ("3", b'{"}"', None),
    ]  # fmt: skip
    assert messages[1].correlation_id == "c="
    assert not route.closed
    h.receive({"c": "ack", "cid": query_id, "a": "stats", "status": "success", "matches": 3})
    deliver, end = h.events()
    assert deliver.messages[0].matches == 3
    assert isinstance(end, StreamEnd)


def test_sow_and_subscribe_delivers_query_and_updates_to_one_route() -> None:
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("sow_and_subscribe", "t", sub_id="S"), route, h.now)
    assert ticket.query_id == ticket.command_id
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.receive({"c": "group_begin", "query_id": ticket.query_id})
    h.receive({"c": "sow", "t": "t", "query_id": ticket.query_id}, body=b'{"k":"1","l":1}a')
    h.receive({"c": "group_end", "query_id": ticket.query_id})
    h.receive({"c": "p", "t": "t", "sids": "S"}, body=b"b")
    h.receive({"c": "oof", "t": "t", "sids": "S", "reason": "match"}, body=b"c")
    messages = [message for event in h.events(Deliver) for message in event.messages]
    assert [(m.command, m.data, m.sub_id) for m in messages if m.is_content] == [
        ("sow", b"a", "S"), ("publish", b"b", "S"), ("oof", b"c", "S"),
    ]  # fmt: skip
    h.engine.cancel(route)
    assert h.sent()[-1].header == {"c": "unsubscribe", "sub_id": "S"}


def test_a_replaced_query_delivers_what_is_new_and_what_has_left_to_the_same_route() -> None:
    """sow.md §1.2, §25.44: records of the new scope as `sow`, others as `oof` with reason, then changes"""
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    first = h.engine.execute(Command("sow_and_subscribe", "t", sub_id="S", options="oof"), route, h.now)
    h.receive({"c": "ack", "cid": first.command_id, "a": "processed", "status": "success"})
    h.receive({"c": "group_begin", "query_id": first.query_id}, {"c": "group_end", "query_id": first.query_id})
    h.events()
    command = Command("sow_and_subscribe", "t", sub_id="S", options="oof,replace", filter="/a > 1")
    second = h.engine.execute(command, route, h.now)
    assert second.query_id != first.query_id
    h.receive({"c": "ack", "cid": second.command_id, "a": "processed", "status": "success"})
    h.receive({"c": "group_begin", "query_id": second.query_id})
    h.receive({"c": "oof", "t": "t", "sids": "S", "reason": "match", "k": "9", "x": "c="}, body=b"z")
    h.receive({"c": "sow", "t": "t", "query_id": second.query_id, "bs": 2}, body=b'{"k":"1","l":1}a{"k":"2","l":1}b')
    h.receive({"c": "group_end", "query_id": second.query_id})
    h.receive({"c": "p", "t": "t", "sids": "S", "k": "1"}, body=b"c")
    delivered = [event for event in h.events(Deliver) if event.route is route]
    messages = [message for event in delivered for message in event.messages]
    assert [(m.command, m.data, m.sow_key, m.reason, m.correlation_id) for m in messages] == [
        ("group_begin", b"", None, None, None),
        ("oof", b"z", "9", "match", "c="),
        ("sow", b"a", "1", None, None),
        ("sow", b"b", "2", None, None),
        ("group_end", b"", None, None, None),
        ("publish", b"c", "1", None, None),
    ]
    assert {message.sub_id for message in messages} == {"S"}
    assert not route.closed
