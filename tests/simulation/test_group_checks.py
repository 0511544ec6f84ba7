"""The invariants of a group must notice each violation that they are for: otherwise they would pass for nothing."""

from collections.abc import Callable

import pytest

from tests.simulation import group_checks
from tests.simulation.group_checks import Held, Lease
from tests.simulation.group_clients import Promise

ONE = [Held("p", 1, "x"), Held("p", 2, "y"), Held("q", 1, "z")]
OTHER = [Held("q", 1, "z"), Held("p", 1, "x"), Held("p", 2, "y")]
LOGS = {"a": ONE, "b": OTHER}
EPOCHS = {"a": 1, "b": 1}
BOTH = frozenset({("a", 1), ("b", 1)})


def _lease(begin: int, end: int | None, persisted: int | None = None, instance: str = "a") -> Lease:
    return Lease(
        ("p", 1), instance, f"consumer on {instance}", begin, end, persisted is not None, persisted=persisted
    )


def test_group_checks_accept_what_is_right() -> None:
    """replication.md §§7, 10, 11, 14: two interleavings of the same messages are equal."""
    group_checks.check_promises([Promise(("p", 2), BOTH)], LOGS, EPOCHS)
    group_checks.check_order(LOGS)
    group_checks.check_contents(LOGS)
    group_checks.check_equal(LOGS)
    group_checks.check_received([("p", 1), ("q", 1), ("p", 2)], LOGS, fully_durable_on=["b"])
    group_checks.check_queue_deliveries([_lease(1, 2), _lease(2, 3, 9, "b"), _lease(3, 4)])
    group_checks.check_queue_empty([("p", 1)], [_lease(1, 2, 3)], {"a": [], "b": []})
    group_checks.check_owners({"a": {("p", 1): "a"}, "b": {("p", 1): "a", ("p", 2): "b"}})


def test_group_checks_excuse_an_instance_that_lost_its_disk() -> None:
    """replication.md §24.10: a new epoch owes nothing of the old one."""
    promises = [Promise(("p", 3), frozenset({("a", 1)}))]
    group_checks.check_promises(promises, LOGS, {"a": 2, "b": 1})
    with pytest.raises(AssertionError, match="missing on a"):
        group_checks.check_promises(promises, LOGS, EPOCHS)


@pytest.mark.parametrize(
    ("violation", "text"),
    [
        (
            lambda: group_checks.check_promises([Promise(("p", 3), BOTH)], LOGS, EPOCHS),
            "acknowledged and is missing",
        ),
        (
            lambda: group_checks.check_promises([Promise(("q", 1), BOTH)], {"a": ONE, "b": []}, EPOCHS),
            "missing on b",
        ),
        (lambda: group_checks.check_order({"a": [*ONE, ONE[1]]}), "twice"),
        (lambda: group_checks.check_order({"a": [ONE[1], ONE[0]]}), "after 2"),
        (lambda: group_checks.check_contents({"a": ONE, "b": [Held("p", 1, "damaged")]}), "was x"),
        (lambda: group_checks.check_equal({"a": ONE, "b": ONE[:2]}), "differ in"),
        (lambda: group_checks.check_equal({"a": ONE, "b": [*ONE, Held("r", 1, "")]}), "differ in"),
        (lambda: group_checks.check_equal({"a": ONE, "b": [*ONE, ONE[2]]}), "different lengths"),
        (lambda: group_checks.check_received([("p", 1), ("p", 1)], LOGS), "delivered again"),
        (lambda: group_checks.check_received([("p", 2), ("p", 1)], LOGS), "delivered again, or after"),
        (lambda: group_checks.check_received([("p", 1), ("q", 1)], LOGS), "never delivered"),
        (
            lambda: group_checks.check_received([("p", 1), ("p", 2), ("q", 1), ("r", 7)], LOGS),
            "nobody has it",
        ),
        (
            lambda: group_checks.check_received(
                [("p", 1), ("p", 2), ("q", 1)], {"a": ONE, "b": ONE[:2]}, fully_durable_on=["b"]
            ),
            "fully durable, and not on b",
        ),
        (lambda: group_checks.check_queue_deliveries([_lease(1, 5), _lease(3, 6, instance="b")]), "at once"),
        (
            lambda: group_checks.check_queue_deliveries([_lease(1, None), _lease(3, 6, instance="b")]),
            "at once",
        ),
        (
            lambda: group_checks.check_queue_deliveries([_lease(1, 2, 3), _lease(4, 5, instance="b")]),
            "delivered again on b",
        ),
        (lambda: group_checks.check_queue_empty([("p", 1)], [], {}), "never acknowledged"),
        (lambda: group_checks.check_queue_empty([("p", 1)], [_lease(1, 2)], {}), "never acknowledged"),
        (lambda: group_checks.check_queue_empty([], [], {"b": [("p", 1)]}), "b still has"),
        (
            lambda: group_checks.check_queue_empty([("p", 1)], [_lease(1, 2, 3), _lease(4, None)], {}),
            "still leased",
        ),
        (
            lambda: group_checks.check_owners({"a": {("p", 1): "a"}, "b": {("p", 1): "b"}}),
            "belongs to a on a",
        ),
    ],
)
def test_group_checks_notice(violation: Callable[[], None], text: str) -> None:
    """One violation for each promise of the module."""
    with pytest.raises(AssertionError, match=text):
        violation()
