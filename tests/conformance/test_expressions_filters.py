"""Filters on JSON through a server: the examples of the reference (expressions.md §13, §15), live and from the log."""

from collections.abc import Callable
from itertools import groupby

import pytest

from tests.support.expression_examples import APPROXIMATE, BAD_FILTERS, FILTERS, REFUSED, ROWS
from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess

EPOCH = "0"
ITEMS = [(item, list(cases)) for item, cases in groupby(FILTERS, key=lambda case: case[0])]
MESSAGES = list(dict.fromkeys(message for _, message, _, _ in ROWS))

Subscribe = Callable[[RawClient, str, str], None]


@pytest.fixture
def client(peers: Peers, typed_server: ServerProcess) -> RawClient:
    return peers.logged_on(typed_server)


@pytest.mark.parametrize("number", range(len(MESSAGES)), ids=lambda number: MESSAGES[number].decode()[:40])
def test_expressions_section_13_the_rows_of_one_message(client: RawClient, topic: str, number: int) -> None:
    """expressions.md §13 rows 1 to 116 but 77 and 104 to 108: every row is a filter of the same message."""
    message = MESSAGES[number]
    wanted = set()
    for place, (row, of_row, text, expected) in enumerate(ROWS):
        if of_row != message:
            continue
        client.subscribe(topic, f"{row}-{place}", f=text.replace("'orders'", f"'{topic}'"))
        if expected in (True, 3, 43, -3, 1420202100.0):
            wanted.add(f"{row}-{place}")
    for row, (text, _) in APPROXIMATE.items():
        client.subscribe(topic, f"{row}", f=text)
        wanted.add(f"{row}")
    client.publish(topic, message)
    assert client.receive().subscriptions == wanted
    client.expect_silence()


def _live(client: RawClient, topic: str, text: str) -> None:
    client.subscribe(topic, "s", f=text)


def _regex(client: RawClient, topic: str, text: str) -> None:
    client.subscribe(f"^{topic}$", "s", f=text)


def _caught_up(client: RawClient, topic: str, text: str) -> None:
    client.subscribe(topic, "s", f=text, bm="0|1|")


@pytest.mark.parametrize("subscribe", [_live, _regex, _caught_up], ids=["live", "regex", "bookmark"])
@pytest.mark.parametrize(("item", "cases"), ITEMS, ids=[str(item) for item, _ in ITEMS])
def test_expressions_section_15_filters(
    client: RawClient,
    recorded_topic: str,
    item: int,
    cases: list[tuple[int, str, list[bytes], list[bytes]]],
    subscribe: Subscribe,
) -> None:
    """expressions.md §15 items 1 to 47, as far as they concern filters on JSON."""
    sequence = 0
    for number, (_, text, delivered, kept_back) in enumerate(cases):
        topic = f"{recorded_topic}/{item}/{number}"
        subscribe(client, topic, text)
        for body in [*kept_back, *delivered, *kept_back]:
            sequence += 1
            client.publish(topic, body, s=sequence)
        assert bodies_of(client.receive_published(len(delivered))) == delivered, text
        client.expect_silence()
        client.unsubscribe("s")


def test_expressions_section_15_replayed(client: RawClient, recorded_topic: str) -> None:
    """expressions.md §15 items 1 to 47: a replay delivers the messages that were delivered live."""
    sequence = 0
    for item, cases in ITEMS:
        for number, (_, _, delivered, kept_back) in enumerate(cases):
            bodies = [*kept_back, *delivered, *kept_back]
            client.publish_all(
                f"{recorded_topic}/{item}/{number}", bodies, first_sequence=sequence + 1, a="persisted"
            )
            sequence += len(bodies)
    client.wait_for_persisted(sequence)
    wanted = {}
    for item, cases in ITEMS:
        for number, (_, text, delivered, _) in enumerate(cases):
            name = f"{item}/{number}"
            wanted[name] = delivered
            client.subscribe(f"{recorded_topic}/{name}", name, bm=EPOCH, f=text, a="processed,completed")
    for _ in wanted:
        client.wait_for_ack("completed")
    got: dict[str, list[bytes]] = {name: [] for name in wanted}
    for message in client.receive_published(sum(map(len, wanted.values()))):
        (name,) = message.subscriptions
        got[name].append(message.body)
    assert got == wanted


@pytest.mark.parametrize(
    ("item", "text"),
    [*BAD_FILTERS, *REFUSED.items()],
    ids=[text for _, text in [*BAD_FILTERS, *REFUSED.items()]],
)
def test_expressions_bad_filters_are_refused(client: RawClient, topic: str, item: int, text: str) -> None:
    """expressions.md §13 rows 77, 114, 115, §15 items 21, 54, 65: the client's other subscriptions go on."""
    client.subscribe(topic, "other")
    ack = client.try_subscribe(topic, "s", f=text)
    assert (ack["status"], ack.reason) == ("failure", "bad filter"), item
    client.publish(topic, b'{"a":1}')
    assert client.receive().subscriptions == {"other"}


def test_expressions_65_a_bad_topic_is_distinguished_from_a_bad_filter(client: RawClient, topic: str) -> None:
    """expressions.md §15 item 65"""
    refused = client.try_subscribe("a(", "t", f="/a = 1")
    assert (refused["status"], refused.reason) == ("failure", "bad regex topic")
    assert client.try_subscribe(topic, "s", f="/a = (").reason == "bad filter"


def test_expressions_55_functions_that_change_in_plain_filters(client: RawClient, topic: str) -> None:
    """expressions.md §15 item 55, as far as there are plain subscriptions only"""
    client.subscribe(topic, "time", f="UNIX_TIMESTAMP() > 0")
    client.subscribe(topic, "read", f="LAST_READ() > 0")
    for function in ("UNIX_TIMESTAMP", "LAST_READ"):
        assert client.try_subscribe(topic, "o", f=f"{function}() > 0", o="oof").reason == "bad filter"
    client.publish(topic, b"{}")
    assert client.receive().subscriptions == {"time"}


def test_expressions_functions_of_the_instance(
    client: RawClient, typed_server: ServerProcess, topic: str
) -> None:
    """expressions.md §10.11: a failing function gives NULL for that message and is logged; the subscription goes on."""
    client.subscribe(topic, "twice", f="TWICE(/n) = 8 OR twice(/s) = 'xx'")
    client.subscribe(topic, "half", f="half_of(/n) = 2")
    client.subscribe(topic, "fault", f="HALF_OF(/n) IS NULL")
    client.subscribe(topic, "dates", f="YEAR(/t) = 2010 AND DATE_UTC(/t) = 1264377600")
    for text in ("TWICE() = 1", "TWICE(1, 2) = 1", "NOSUCH(1) = 1"):
        assert client.try_subscribe(topic, "bad", f=text).reason == "bad filter"
    for body in (b'{"n":4}', b'{"n":3}', b'{"s":"x","t":1264413840}', b'{"n":4}'):
        client.publish(topic, body)
    got = [message.subscriptions for message in client.receive_published(4)]
    assert got == [{"twice", "half"}, {"fault"}, {"twice", "fault", "dates"}, {"twice", "half"}]
    typed_server.log.wait_for("14-0005", "function HALF_OF failed", "the last time: TypeError: ")
