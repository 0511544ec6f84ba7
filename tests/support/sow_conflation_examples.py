"""Examples of conflated subscriptions from sow.md §16 and §25, as small functions that assert what the model does."""

import json
from typing import Any

from tests.support.sow_conflation import Conflation
from tests.support.sow_examples import EVERYTHING, EXAMPLES, example, more_than_ten, record, topic
from tests.support.sow_views import DELETED, MATCH, View

__all__ = ["EXAMPLES"]


@example
def a_conflated_subscription_gets_the_last_message_of_an_interval() -> None:
    """sow.md §25.35, §16: each record has an interval of its own, which the first message opens."""
    model = topic()
    subscription = Conflation(EVERYTHING, model, interval_s=1.0)
    for time_s, number, value in ((0.0, 1, 1), (0.1, 1, 2), (0.5, 2, 1), (0.9, 1, 3)):
        model.pass_time(time_s)
        assert subscription.see(model.publish(record(id=number, a=value))) == []
    assert subscription.pass_time(0.99) == []
    assert [(time_s, event.body) for time_s, event in subscription.pass_time(1.0)] == [(1.0, {"id": 1, "a": 3})]
    model.pass_time(1.2)
    assert subscription.see(model.publish(record(id=1, a=4))) == []
    assert [event.body["a"] for _, event in subscription.pass_time(2.0)] == [1]
    assert [(time_s, event.body["a"]) for time_s, event in subscription.pass_time(9.0)] == [(2.2, 4)]
    assert subscription.pass_time(99.0) == []


@example
def a_conflated_subscription_joins_deltas() -> None:
    """sow.md §25.37: a field that occurred in a delta of the interval has its last value, even if it is the old one."""
    model = topic()
    model.publish('{"id":1,"s":"open","n":"-","x":8}')
    view = View(lambda message: message["x"] < 9, delta=True, oof=True)
    subscription = Conflation(view, model, interval_s=1.0)
    for status, note in (("q", "-"), ("q", "hold"), ("c", "-"), ("open", "-")):
        subscription.see(model.publish(json.dumps({"id": 1, "s": status, "n": note, "x": 8})))
    ((_, event),) = subscription.pass_time(1.0)
    assert event.body == {"id": 1, "s": "open", "n": "-"}
    model.pass_time(5.0)
    subscription.see(model.delta_publish('{"id":1,"x":9}'))
    ((_, event),) = subscription.pass_time(6.0)
    assert (event.body, event.reason) == ({"id": 1, "s": "open", "n": "-", "x": 8}, MATCH)


@example
def a_conflated_subscription_tells_only_of_records_that_it_has_shown() -> None:
    """sow.md §25.38, §13: leaving and coming back is no message; the body of an `oof` is what was received."""
    model = topic()
    model.publish(record(id=1, a=20))
    subscription = Conflation(View(more_than_ten, oof=True), model, interval_s=1.0)

    def messages(*values: int, number: int = 1) -> list[tuple[Any, str | None]]:
        for value in values:
            subscription.see(model.publish(record(id=number, a=value)))
        now_s = model.now_s + 5
        model.pass_time(now_s)
        return [(event.body, event.reason) for _, event in subscription.pass_time(now_s)]

    assert messages(5) == [({"id": 1, "a": 20}, MATCH)], "the rows of the query have been shown"
    assert messages(20) == [({"id": 1, "a": 20}, None)]
    assert messages(5, 21) == [({"id": 1, "a": 21}, None)]
    assert messages(30, 5) == [({"id": 1, "a": 21}, MATCH)]
    assert messages(20, 5, number=2) == []
    assert messages(20, number=2) == [({"id": 2, "a": 20}, None)]
    subscription.see(model.delete_where(lambda message: True))
    assert [(event.body, event.reason) for _, event in subscription.pass_time(99)] == [({"id": 2, "a": 20}, DELETED)]
