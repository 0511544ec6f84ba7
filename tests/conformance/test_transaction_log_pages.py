"""`O_DIRECT`, transaction_log.md §1: whether written data stays in the page cache."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from amps._core.journal.group_commit import PAGES_KEPT_BYTES
from tests.support.page_cache import PAGE_BYTES, pages_can_leave, resident_pages
from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, queue_xml
from tests.support.server import ServerProcess, StartServer
from tests.support.services import action, do, on

MIB = 1 << 20
MESSAGE_BYTES = 250_000
MESSAGES = (PAGES_KEPT_BYTES + 45 * MIB) // MESSAGE_BYTES
"""Enough for the bytes that are kept and for some journals before them."""
OLD_JOURNALS = 3
LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def _disk(tmp_path: Path) -> None:
    if not pages_can_leave(tmp_path):
        pytest.skip("files in this directory never leave memory")


def body(number: int) -> bytes:
    return b"%06d" % number + b"x" * (MESSAGE_BYTES - 6)


def publish(client: RawClient, topic: str) -> None:
    for number in range(MESSAGES):
        client.publish(topic, body(number), s=number + 1, a="persisted")
    client.wait_for_persisted(MESSAGES)


def old_pages(server: ServerProcess) -> int:
    """The number of pages of the oldest journals in memory."""
    return sum(resident_pages(path) for path in server.journals()[:OLD_JOURNALS])


def wait_until_given_back(
    server: ServerProcess,
    client: RawClient,
    topic: str,
    pages: Callable[[ServerProcess], int] = old_pages,
) -> None:
    """Wait until no page of them is in memory. Something must be written now and then, since pages are only released
    then.
    """
    until_s = time.monotonic() + LIMIT_S
    number = MESSAGES
    while pages(server) > 0:
        assert time.monotonic() < until_s, f"{pages(server)} pages are in memory"
        number += 1
        client.publish(topic, b"more", s=number, a="persisted")
        client.wait_for_persisted(number)
        time.sleep(0.05)


def test_transaction_log_pages_that_all_readers_have_passed_leave_the_page_cache(
    start_server: StartServer, peers: Peers
) -> None:
    """The pages can still be read afterwards."""
    server = start_server(log_topics=("^t",))
    watcher = peers.logged_on(server)
    watcher.subscribe("t", "w", filter="/nothing = 1")
    publisher = peers.logged_on(server, o="ack_conflation=1ms")
    publish(publisher, "t")
    wait_until_given_back(server, publisher, "t")
    reader = peers.logged_on(server)
    reader.subscribe("t", "r", bm="0")
    assert [message.body for message in reader.receive_published(MESSAGES)] == [
        body(n) for n in range(MESSAGES)
    ]


def test_transaction_log_actions_on_queues_hold_no_pages(start_server: StartServer, peers: Peers) -> None:
    """The services process reads the whole log for them, and releases pages before it reaches the end of a journal."""
    letters = do("publish-message", Topic="letters", MessageType="json", Data="{{AMPS_DATA}}")
    actions = action(on("sow-expire-message", Topic="Q", MessageType="json"), letters)
    server = start_server(
        log_topics=("^t", "T"),
        instance_xml=f"<SOW>{queue_xml('Q', 'T')}</SOW><Actions>{actions}</Actions>",
        journal_size="200MB",
    )
    publisher = peers.logged_on(server, o="ack_conflation=1ms")
    publish(publisher, "t")
    wait_until_given_back(
        server,
        publisher,
        "t",
        lambda server: resident_pages(server.journals()[0], MIB, OLD_JOURNALS * 10 * MIB),
    )


def test_transaction_log_o_direct_disabled_leaves_that_to_the_system(
    start_server: StartServer, peers: Peers
) -> None:
    server = start_server(log_topics=("^t",), journal_xml="<O_DIRECT>disabled</O_DIRECT>")
    publisher = peers.logged_on(server, o="ack_conflation=1ms")
    publish(publisher, "t")
    time.sleep(1.0)  # transports and flusher have had time to release pages
    publisher.publish("t", b"more", s=MESSAGES + 1, a="persisted")
    publisher.wait_for_persisted(MESSAGES + 1)
    pages = sum(path.stat().st_size for path in server.journals()[:OLD_JOURNALS]) // PAGE_BYTES
    assert old_pages(server) > pages // 2


def test_transaction_log_undelivered_queue_messages_stay_in_memory(
    start_server: StartServer, peers: Peers
) -> None:
    server = start_server(log_topics=("^T",), instance_xml=f"<SOW>{queue_xml('Q', 'T')}</SOW>")
    queueing = Queueing(server, peers)
    publisher = peers.logged_on(server, o="ack_conflation=1ms")
    publish(publisher, "T")
    time.sleep(1.0)
    publisher.publish("T", b"more", s=MESSAGES + 1, a="persisted")
    publisher.wait_for_persisted(MESSAGES + 1)
    pages = sum(path.stat().st_size for path in server.journals()[:OLD_JOURNALS]) // PAGE_BYTES
    assert old_pages(server) > pages // 2
    consumer = queueing.consumer()
    for first in range(0, MESSAGES, 10):
        numbers = range(first, min(first + 10, MESSAGES))
        messages = consumer.receive_published(len(numbers))
        assert [message.body for message in messages] == [body(number) for number in numbers]
        acknowledge(consumer, *messages)
    wait_until_given_back(server, publisher, "T")
