"""Messages that leave a queue of a pair otherwise than by an acknowledgement of their consumer.

replication.md §26, 32 and 34 as far as they hold for queues, 25.8, 25.34; queues.md D-35, D-40.

All tests use one pair, whose queue is empty between them.
"""

import time
from collections.abc import Iterator

import pytest

from tests.support.link_proxy import LinkProxy
from tests.support.queues import bodies
from tests.support.replicated_queues import Group, take
from tests.support.server import wait_until
from tests.support.services import action, do, on

MARKED = "/marked = 1"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    made = Group(tmp_path_factory.mktemp("pair"))
    purge = action(
        on("admin", Path="purge"), do("delete-sow", Topic="Q", MessageType="json", Filter=MARKED)
    )
    try:
        with made.instances:
            for name, other in ("AB", "BA"):
                made.add(name, [other], xml=f"<Actions>{purge}</Actions>")
            for ends in ("AB", "BA"):
                made.instances.proxy(*ends)
            made.instances.start()
            yield made
    finally:
        made.release()


@pytest.fixture
def proxies(pair: Group) -> Iterator[list[LinkProxy]]:
    found = [pair.instances.proxy(*ends) for ends in ("AB", "BA")]
    yield found
    for proxy in found:
        proxy.heal()


def hold(proxies: list[LinkProxy]) -> None:
    for proxy in proxies:
        proxy.hold()
    time.sleep(0.1)  # what its threads wait for now still passes


@pytest.mark.parametrize("how", ["command", "action"])
def test_replication_32_a_deletion_by_filter_removes_the_same_messages_everywhere(
    pair: Group, proxies: list[LinkProxy], how: str
) -> None:
    """replication.md §26 32, 25.8: a message that only B has, and that matches, stays on both."""
    client = pair.client("A")
    for body in (b'{"id":1,"marked":1}', b'{"id":2,"marked":0}', b'{"id":3,"marked":1}'):
        client.publish("T", body)
    client.flush("persisted")
    pair.wait_metrics("B", queue_depth=3)
    hold(proxies)
    elsewhere = b'{"id":4,"marked":1}'
    other = pair.client("B")
    other.publish("T", elsewhere)
    other.flush("processed")
    pair.wait_metrics("B", queue_depth=4)
    if how == "command":
        answer = client.request({"c": "sow_delete", "t": "Q", "filter": MARKED, "a": "stats"}, ack="stats")
        assert answer["records_deleted"] == 2
    else:
        pair.act("A", "purge")
    pair.wait_metrics("A", queue_depth=1)
    pair.wait_metrics("B", queue_depth=4)
    for proxy in proxies:
        proxy.heal()
    other.flush("persisted")
    for name in "AB":
        pair.wait_metrics(name, queue_depth=2)
    consumer = pair.consumer("A")
    assert sorted(take(consumer, 2)) == [b'{"id":2,"marked":0}', elsewhere]
    consumer.close()
    for name in "AB":
        pair.wait_metrics(name, queue_depth=0)



@pytest.mark.parametrize("cut_off", [False, True])
def test_replication_34_a_message_expires_on_both(
    pair: Group, proxies: list[LinkProxy], cut_off: bool
) -> None:
    """replication.md §26 34, §3, 25.34: the instance of the publish fixes the time; each one removes the message by
    itself, also without a link.
    """
    client = pair.client("A")
    entered_before = pair.details("B")["insert_count"]
    began_s = time.monotonic()
    for body in bodies(1, 2):
        client.publish("T", body, e=2)
    client.flush("persisted")
    wait_until(
        lambda: pair.details("B")["insert_count"] == entered_before + 2, 20, "B does not have the messages"
    )
    if cut_off:
        hold(proxies)
    for name in "BA":
        pair.wait_metrics(name, queue_depth=0)
        assert time.monotonic() - began_s >= 1.5
