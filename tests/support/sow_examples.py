"""Examples of the state of the world from sow.md §25, as small functions that assert what the model does."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support import sow_documents, sow_model
from tests.support.sow_model import ENABLED, Change, Settings, SowModel, digest
from tests.support.sow_views import (
    DELETED,
    ENTITLEMENT,
    EXPIRED,
    MATCH,
    Event,
    OrderField,
    Row,
    View,
    events,
    replaced,
    rows,
)

Example = Callable[[], None]
EXAMPLES: list[Example] = []

EVERYTHING = View()


def example(function: Example) -> Example:
    EXAMPLES.append(function)
    return function


def topic(**settings: Any) -> SowModel:
    return SowModel(Settings(**settings))


def more_than_ten(message: Any) -> bool:
    return bool(message.get("a", 0) > 10)


def bodies(model: SowModel, view: View = EVERYTHING) -> list[Any]:
    return [row.body for row in rows(view, model.state())]


def seen(view: View, model: SowModel, changes: list[Change]) -> list[tuple[Any, str | None]]:
    """Bodies and reasons of what a subscription gets for these changes."""
    txids = sorted({change.txid for change in changes})
    return [(event.body, event.reason) for txid in txids for event in events(view, model, txid)]


def record(**fields: int) -> str:
    return json.dumps(fields)


def by_id(top: int, skip: int, **options: Any) -> View:
    return View(order_by=(OrderField("/id"),), top=top, skip=skip, **options)


@example
def a_publish_replaces_the_record() -> None:
    """sow.md §25.1."""
    model = topic()
    model.publish('{"id":1,"a":1,"b":2}')
    model.publish('{"id":1,"a":5}')
    assert bodies(model) == [{"id": 1, "a": 5}]


@example
def keys_depend_on_the_domain() -> None:
    """sow.md §25.5, D2, D3, D4: `1`, `"1"` and `[1]` are one key, `1.0` is not; missing, null and empty are one."""
    message = '{"id":1}'
    (own,), (other,) = (topic(name=name).publish(message) for name in ("a", "b"))
    assert own.key != other.key
    assert own.key == digest(b"a\x011")
    (own,), (other,) = (topic(name=name, domain="d").publish(message) for name in ("a", "b"))
    assert own.key == other.key == digest(b"d\x011")
    model = topic()
    ones = ('{"id":[1,2]}', '{"id":1}', '{"id":"1"}')
    nulls = ('{"id":{"x":1}}', "{}", '{"id":null}', '{"id":""}')
    for text in (*ones, '{"id":1.0}', *nulls, '{"id":true}'):
        model.publish(text)
    assert sorted(map(str, bodies(model))) == ["{'id': ''}", "{'id': '1'}", "{'id': 1.0}", "{'id': True}"]


@example
def composite_keys_are_ordered() -> None:
    """sow.md §25.7; nested fields are keys, too."""
    model = topic(keys=("/a", "/q/b"))
    for text in ('{"a":1,"q":{"b":2}}', '{"a":2,"q":{"b":1}}', '{"a":1,"q":{"b":2},"c":3}'):
        model.publish(text)
    assert len(model.state()) == 2
    assert {"a": 1, "q": {"b": 2}, "c": 3} in bodies(model)


@example
def publishers_provide_keys() -> None:
    """sow.md §25.8."""
    model = topic(keys=())
    model.publish('{"a":1}', name="abc")
    (change,) = model.publish('{"a":2}', name="abc")
    assert change.name == "abc"
    with pytest.raises(ValueError, match="no sow_key"):
        model.publish('{"a":3}')
    assert bodies(model) == [{"a": 2}]
    assert len(model.delete_names(["abc", "other"])) == 1
    assert bodies(model) == []


@example
def records_expire() -> None:
    """sow.md §25.12, §25.13, §5."""
    model = topic(expiration=2.0)
    view = View(oof=True)
    model.publish('{"id":1}')
    model.publish('{"id":2}', lifetime_s=0)
    model.publish('{"id":3}', lifetime_s=10)
    model.publish('{"id":4}')
    assert model.pass_time(1.5) == []
    model.publish('{"id":4,"a":1}')
    assert model.pass_time(1.99) == []
    assert seen(view, model, model.pass_time(2.0)) == [({"id": 1}, EXPIRED)]
    assert model.pass_time(3.4) == []
    model.delta_publish('{"id":4,"a":2}')
    assert model.pass_time(5.0) == []
    assert seen(view, model, model.pass_time(5.4)) == [({"id": 4, "a": 2}, EXPIRED)]
    assert seen(view, model, model.pass_time(10)) == [({"id": 3}, EXPIRED)]
    assert model.pass_time(1000.0) == []
    assert bodies(model) == [{"id": 2}]


@example
def lifetimes_that_the_topic_does_not_act_on_stay_stored() -> None:
    """sow.md §25.14, §25.15, §5."""
    model = topic()
    model.publish('{"id":1}', lifetime_s=1)
    assert model.pass_time(50) == []
    assert [change.kind for change in model.restart(51, expiration=ENABLED)] == [sow_model.EXPIRY]
    assert bodies(model) == []
    model.publish('{"id":2}')
    model.publish('{"id":3}', lifetime_s=1)
    model.restart(52, expiration=100.0)
    assert bodies(model) == [{"id": 2}]
    assert model.pass_time(1000) == []


@example
def records_are_deleted() -> None:
    """sow.md §25.17, §25.18, §6, D28."""
    model = topic()
    for number in range(5):
        model.publish(record(id=number))
    view = View(oof=True)
    assert seen(view, model, model.delete_data('{"id":1}')) == [({"id": 1}, DELETED)]
    assert model.delete_data('{"id":99}') == []
    keys = [row.key for row in rows(EVERYTHING, model.state())]
    assert len(model.delete_keys([keys[0], keys[0], 17])) == 1
    changes = model.delete_where(lambda message: True)
    assert len(changes) == 3
    assert len({change.txid for change in changes}) == 1
    assert sorted(change.key for change in changes) == [change.key for change in changes]
    assert {reason for _, reason in seen(view, model, changes)} == {DELETED}
    assert model.delete_where(lambda message: True) == []
    assert bodies(model) == []


@example
def deletes_by_filter_reach_only_matches() -> None:
    """sow.md §6."""
    model = topic()
    model.publish('{"id":1,"a":20}')
    model.publish('{"id":2,"a":5}')
    assert [change.old for change in model.delete_where(more_than_ten)] == [
        sow_documents.parse('{"id":1,"a":20}')
    ]
    assert bodies(model) == [{"id": 2, "a": 5}]


@example
def records_go_out_of_focus() -> None:
    """sow.md §25.19, §25.20, §25.21, §13."""
    model = topic()
    view = View(more_than_ten, oof=True)
    assert seen(view, model, model.publish('{"id":1,"a":20,"b":7}')) == [({"id": 1, "a": 20, "b": 7}, None)]
    changes = model.delta_publish('{"id":1,"a":5}')
    assert seen(view, model, changes) == [({"id": 1, "a": 5, "b": 7}, MATCH)]
    assert seen(replace(view, oof=False), model, changes) == []
    assert seen(view, model, model.publish('{"id":1,"a":6}')) == []
    assert seen(view, model, model.delete_data('{"id":1}')) == []
    model.publish('{"id":1,"a":20}')
    assert seen(view, model, model.publish('{"id":1,"a":6}')) == [({"id": 1, "a": 6}, MATCH)]


@example
def the_previous_state_is_shown_when_the_new_one_must_not_be() -> None:
    """sow.md §13, D29: reason `entitlement`, also when the filter is lost in the same update."""
    model = topic()
    view = View(more_than_ten, lambda message: message.get("desk") == "x", oof=True)
    model.publish('{"id":1,"a":20,"desk":"x"}')
    changes = model.publish('{"id":1,"a":5,"desk":"y"}')
    assert seen(view, model, changes) == [({"id": 1, "a": 20, "desk": "x"}, ENTITLEMENT)]
    assert rows(View(entitled=view.entitled), model.state()) == []


@example
def deltas_merge() -> None:
    """sow.md §25.23, §25.24, §25.25, §25.26, §14."""
    model = topic()
    model.delta_publish('{"id":1,"q":{"x":1,"y":2},"l":[1,2,3],"c":{"p":[{"m":1},{"n":2}],"z":0},"n":null}')
    assert bodies(model)[0]["n"] is None, "the first delta is stored as it is"
    model.delta_publish('{"id":1,"q":{"x":9},"l":[7],"c":{"p":[{"k":3}]},"new":"v"}')
    expected = {
        "id": 1,
        "q": {"x": 9, "y": 2},
        "l": [7],
        "c": {"p": [{"k": 3}], "z": 0},
        "n": None,
        "new": "v",
    }
    assert bodies(model) == [expected]
    model.delta_publish('{"id":1,"new":null}')
    model.delta_publish('{"id":1,"new":""}')
    model.delta_publish('{"id":1,"new":{"a":null,"b":{}}}')
    assert bodies(model) == [expected]
    model.delta_publish('{"id":1,"new":{"a":1,"b":null},"q":4}')
    assert bodies(model) == [{**expected, "new": {"a": 1}, "q": 4}]
    model.delta_publish('{"id":"1","q":5}')
    assert bodies(model) == [{**expected, "new": {"a": 1}, "q": 5}], "a delta does not change the key's fields"
    model.publish('{"id":1}')
    assert bodies(model) == [{"id": 1}]


@example
def delta_subscribers_get_changed_fields() -> None:
    """sow.md §25.30, §25.31, §17, D10, D12."""
    model = topic(keys=("/id", "/k/sub"))
    view = View(delta=True)
    first = '{"id":1,"k":{"sub":"s"},"a":1,"b":{"x":1,"y":[1,2]},"c":1}'
    assert seen(view, model, model.publish(first)) == [(bodies(model)[0], None)]
    keys = {"id": 1, "k": {"sub": "s"}}
    changes = model.publish('{"id":1,"k":{"sub":"s"},"a":1,"b":{"x":1,"y":[1,3]}}')
    assert seen(view, model, changes) == [({**keys, "b": {"y": [1, 3]}, "c": None}, None)]
    changes = model.delta_publish('{"id":1,"k":{"sub":"s"},"a":1}')
    assert seen(view, model, changes) == [(keys, None)]
    assert seen(replace(view, no_empties=True), model, changes) == []
    assert seen(EVERYTHING, model, changes) == [(bodies(model)[0], None)]
    changes = model.delta_publish('{"id":1,"k":{"sub":"s"},"a":1.0,"b":2}')
    assert seen(view, model, changes) == [({**keys, "a": 1.0, "b": 2}, None)]
    changes = model.delta_publish('{"id":1,"k":{"sub":"s"},"b":3}')
    assert seen(replace(view, no_empties=True), model, changes) == [({**keys, "b": 3}, None)]
    changes = model.publish('{"id":1,"k":{"sub":"s"},"a":1.0,"b":3,"n":null}')
    assert seen(view, model, changes) == [(keys, None)], "null is as good as missing"
    changes = model.publish('{"id":"1","k":{"sub":"s"},"a":1.0,"b":3}')
    assert seen(replace(view, no_empties=True), model, changes) == [], "a key is no data"


@example
def a_delta_subscriber_sees_records_come_into_focus() -> None:
    """sow.md §25.33, D10: only `oof` promises the full message."""
    model = topic()
    view = View(more_than_ten, oof=True, delta=True)
    model.publish('{"id":1,"a":5,"b":7}')
    changes = model.publish('{"id":1,"a":20,"b":7}')
    assert seen(view, model, changes) == [({"id": 1, "a": 20, "b": 7}, None)]
    assert seen(replace(view, oof=False), model, changes) == [({"id": 1, "a": 20}, None)]
    changes = model.delta_publish('{"id":1,"a":21}')
    assert seen(view, model, changes) == [({"id": 1, "a": 21}, None)]
    model.delete_data('{"id":1}')
    changes = model.publish('{"id":1,"a":21,"b":7}')
    assert seen(replace(view, oof=False), model, changes) == [({"id": 1, "a": 21, "b": 7}, None)]


@example
def select_lists_choose_fields() -> None:
    """sow.md §25.39, §18, D30."""
    model = topic()
    model.publish('{"id":1,"a":20,"n":{"a":1,"b":{"c":2}},"s":"t"}')

    def selected(*select: str) -> Any:
        return bodies(model, View(more_than_ten, select=select))[0]

    assert selected("-/,+/id,+/n/a") == {"id": 1, "n": {"a": 1}}
    assert selected("-/n, +/n/a") == {"id": 1, "a": 20, "n": {"a": 1}, "s": "t"}
    assert selected("-/a,+/a") == {"id": 1, "n": {"a": 1, "b": {"c": 2}}, "s": "t"}
    assert selected("-/a,+/") == {"id": 1, "n": {"a": 1, "b": {"c": 2}}, "s": "t"}
    assert selected("-/") == {}
    assert selected("-/,+/x,+/a/z") == {}
    assert selected("-/n/a,-/n/b/c") == {"id": 1, "a": 20, "n": {"b": {}}, "s": "t"}
    assert selected("-/a", "+/a") == selected("-/a")
    assert selected("-/,+/s,+/n/b", "-/,+/n/a,+/n/b/c") == {"n": {"b": {"c": 2}}}
    with pytest.raises(ValueError, match="no directive"):
        selected("/a")
    view = View(delta=True, no_empties=True, select=("-/a",))
    assert seen(view, model, model.delta_publish('{"id":1,"a":21}')) == []
    assert seen(view, model, model.delta_publish('{"id":1,"s":"u"}')) == [({"id": 1, "s": "u"}, None)]
    view = View(more_than_ten, oof=True, select=("-/n",))
    changes = model.delta_publish('{"id":1,"a":1}')
    assert seen(view, model, changes) == [({"id": 1, "a": 1, "s": "u"}, MATCH)]
    model.publish('{"id":1,"a":20,"n":1}')
    assert seen(view, model, model.delete_data('{"id":1}')) == [({"id": 1, "a": 20}, DELETED)]


@example
def results_are_ordered() -> None:
    """sow.md §25.40, §10, D8."""
    model = topic()
    values = ('"10"', '"9"', "10", "9", "null", '"x"', "true", "[9.5]", '{"y":1}')
    for number, value in enumerate(values):
        model.publish(f'{{"id":{number},"v":{value}}}')

    def order(*fields: OrderField) -> list[Any]:
        return [row["id"] for row in bodies(model, View(order_by=fields))]

    by_number = OrderField("/id")
    assert order(OrderField("/v"), by_number) == [4, 8, 6, 3, 7, 2, 0, 1, 5]
    assert order(OrderField("/v", descending=True), by_number) == [5, 1, 0, 2, 7, 3, 6, 4, 8]
    assert order(OrderField("/v", as_text=True), by_number) == [4, 8, 0, 2, 1, 3, 7, 6, 5]
    keys = [row.key for row in rows(View(order_by=(OrderField("/none", True),)), model.state())]
    assert keys == sorted(keys)


@example
def results_are_limited() -> None:
    """sow.md §25.41, §25.43, §11."""
    model = topic()
    for number in range(1, 6):
        model.publish(record(id=number))
    assert bodies(model, by_id(2, 2)) == [{"id": 3}, {"id": 4}]
    assert bodies(model, by_id(9, 4)) == [{"id": 5}]
    assert bodies(model, View(top=0)) == []
    first = View(order_by=(OrderField("/id"),), top=1)
    assert bodies(model, first) == [{"id": 1}]
    assert seen(first, model, model.publish('{"id":4,"a":1}')) == [({"id": 4, "a": 1}, None)]


@example
def pages_follow() -> None:
    """sow.md §25.42, §11, D19."""
    model = topic()
    for number in (10, 20, 50, 70):
        model.publish(record(id=number))
    view = by_id(2, 1, oof=True)
    assert bodies(model, view) == [{"id": 20}, {"id": 50}]
    changes = model.publish('{"id":40}')
    assert seen(view, model, changes) == [({"id": 50}, MATCH), ({"id": 40}, None)]
    assert seen(replace(view, oof=False), model, changes) == [({"id": 40}, None)]
    assert seen(view, model, model.publish('{"id":70,"a":1}')) == []
    assert seen(view, model, model.publish('{"id":20,"a":1}')) == [({"id": 20, "a": 1}, None)]
    assert seen(view, model, model.delete_data('{"id":70}')) == []
    changes = model.delete_data('{"id":10}')
    assert seen(view, model, changes) == [({"id": 20, "a": 1}, MATCH), ({"id": 50}, None)]
    assert seen(view, model, model.delete_data('{"id":40}')) == [({"id": 40}, DELETED)]


@example
def pages_of_deltas_and_filters_follow() -> None:
    """sow.md D19: full messages for records that are pulled in."""
    model = topic()
    for number in range(1, 5):
        model.publish(record(id=number, a=20, p=number))
    order = (OrderField("/p"),)
    view = View(more_than_ten, oof=True, delta=True, order_by=order, top=2, skip=0)
    assert seen(view, model, model.delta_publish('{"id":1,"p":1.5}')) == [({"id": 1, "p": 1.5}, None)]
    changes = model.delta_publish('{"id":1,"p":9}')
    assert seen(view, model, changes) == [
        ({"id": 1, "a": 20, "p": 9}, MATCH),
        ({"id": 3, "a": 20, "p": 3}, None),
    ]
    changes = model.delta_publish('{"id":2,"a":1}')
    assert seen(view, model, changes) == [
        ({"id": 2, "a": 1, "p": 2}, MATCH),
        ({"id": 4, "a": 20, "p": 4}, None),
    ]
    assert seen(view, model, model.delete_data('{"id":2}')) == []
    changes = model.delta_publish('{"id":1,"p":1}')
    assert seen(view, model, changes) == [
        ({"id": 4, "a": 20, "p": 4}, MATCH),
        ({"id": 1, "a": 20, "p": 1}, None),
    ]
    assert seen(replace(view, oof=False), model, changes) == [({"id": 1, "a": 20, "p": 1}, None)]


@example
def a_replaced_subscription_gets_the_difference() -> None:
    """sow.md §25.44, §1.2."""
    model = topic()
    for number, value in enumerate((1, 7, 15)):
        model.publish(record(id=number, a=value))
    old = View(lambda message: message["a"] < 10)
    new = View(lambda message: 5 <= message["a"] <= 20, oof=True)
    added, left = replaced(old, new, model.state())
    assert [row.body for row in added] == [{"id": 2, "a": 15}]
    assert [(event.body, event.reason) for event in left] == [({"id": 0, "a": 1}, MATCH)]
    assert replaced(old, replace(new, oof=False), model.state()) == (added, [])


@example
def the_state_of_each_transaction_is_known() -> None:
    """A snapshot at a transaction contains exactly what happened before it."""
    model = topic()
    (first,) = model.publish('{"id":1,"a":1}')
    model.now_s = 10.0
    (second,) = model.publish('{"id":1,"a":2}')
    (third,) = model.delete_data('{"id":1}')
    assert [change.txid for change in (first, second, third)] == [1, 2, 3]
    assert second.old == first.new
    assert third.old == second.new
    assert model.state(first.txid) == {}
    assert model.state(second.txid) == {first.key: first.new}
    assert model.state(third.txid) == {first.key: second.new}
    assert model.state() == {}
    assert model.state_at(9.0) == {first.key: first.new}
    assert model.state_at(10.0) == {}
    assert Row(1, {}) != Event(1, {})


@example
def history_is_queried() -> None:
    """sow.md §25.60, §25.61, §9."""
    model = topic(window_s=3600.0, granularity_s=0.0)
    model.publish('{"id":1,"a":1}')
    model.publish('{"id":2}')
    model.pass_time(4)
    model.publish('{"id":1,"a":2}')
    model.delete_data('{"id":2}')

    def answer(time_s: float) -> list[Any]:
        return [row.body for row in rows(View(order_by=(OrderField("/id"),)), model.historical(time_s))]

    assert answer(2.0) == [{"id": 1, "a": 1}, {"id": 2}]
    assert answer(4.0) == [{"id": 1, "a": 2}] == bodies(model)
    model.pass_time(3602.0)
    assert answer(2.0) == [{"id": 1, "a": 1}, {"id": 2}]
    model.pass_time(3602.5)
    assert answer(2.0) == []
    assert answer(4.0) == [{"id": 1, "a": 2}]
    plain = topic()
    plain.publish('{"id":1}')
    assert plain.historical(-5.0) == plain.state(), "without a history the bookmark is ignored"


@example
def history_is_kept_by_intervals() -> None:
    """sow.md §9, D23."""
    model = topic(window_s=1000.0, granularity_s=10.0)
    for time_s, value in ((5, 1), (11, 2), (19, 3), (35, 4), (36, 5)):
        model.pass_time(time_s)
        model.publish(record(id=1, a=value))
    model.pass_time(41)

    def answer(time_s: float) -> list[Any]:
        return [document["a"].text for document in model.historical(time_s).values()]

    assert answer(4) == []
    assert [answer(time_s) for time_s in (5, 12, 18, 19, 34, 35, 36, 41)] == [
        ["1"], ["1"], ["1"], ["3"], ["3"], ["3"], ["5"], ["5"]
    ]  # fmt: skip


@example
def history_is_replayed() -> None:
    """sow.md §25.62, D23: the state of the last full interval, and everything since."""
    model = topic(window_s=1000.0, granularity_s=10.0)
    for time_s, value in ((5, 1), (11, 2), (19, 3)):
        model.pass_time(time_s)
        model.publish(record(id=1, a=value))
    state, replay = model.replay_from(15)
    assert [document["a"].text for document in state.values()] == ["1"]
    assert [change.new["a"].text for change in replay if change.new] == ["2", "3"]
    exact = topic(window_s=1000.0, granularity_s=0.0)
    exact.pass_time(5)
    exact.publish('{"id":1}')
    assert exact.replay_from(4.5) == ({}, exact.changes)
    assert exact.replay_from(5) == (exact.state(), [])


@example
def correlation_ids_are_kept() -> None:
    """sow.md §25.68, §1."""
    model = topic()
    ids = [
        change.correlation_id
        for (change,) in (
            model.publish('{"id":1}', correlation_id="A"),
            model.delta_publish('{"id":1}'),
            model.delta_publish('{"id":1}', correlation_id="B"),
            model.delta_publish('{"id":1}'),
            model.publish('{"id":1}'),
            model.delta_publish('{"id":1}'),
        )
    ]
    assert ids == ["A", "A", "B", "B", None, None]
